"""What cuDNN's attention requests from PyTorch's allocator in addition to its results."""

import json

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

memory = torch.cuda.memory
seen = {}


def last(call):
    """The bytes of the last alloc of a call: the workspace, if there is one."""
    memory._record_memory_history(max_entries=10_000, context=None)
    result = call()
    torch.cuda.synchronize()
    events = memory._snapshot()["device_traces"][0]
    memory._record_memory_history(enabled=None)
    return result, [event["size"] for event in events if event["action"] == "alloc"][-1]


def attend(name, heads, shared, queries, keys, width=128, batch=1):
    """Forward and backward; heads: of the query, shared: of the keys."""
    q, k, v = (
        torch.ones(batch, *shape, width, dtype=torch.bfloat16, device="cuda", requires_grad=grad)
        for grad in (queries > 1,)
        for shape in ((heads, queries), (shared, keys), (shared, keys))
    )

    def forward():
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=queries > 1, enable_gqa=heads != shared
        )

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out, found = last(forward)
        seen[name] = [found]
        if out.requires_grad:
            seen[name].append(last(lambda: out.backward(torch.ones_like(out)))[1])


attend("equal heads", 8, 8, 128, 128, width=64, batch=2)
attend("shared heads", 32, 8, 512, 512, batch=12)
for keys in (853, 1173, 1979, 3016, 6529):
    attend(f"single query, {keys} keys", 32, 8, 1, keys)
attend("single query of 80 sequences", 20, 20, 1, 1500, width=64, batch=80)
print(json.dumps(seen))
