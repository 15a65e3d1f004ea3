"""The allocs of a call, from PyTorch's own memory history, for the programs in this folder."""

import warnings

import torch

warnings.simplefilter("ignore")
HALF, BRAIN, FLOAT, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
LAST = torch.channels_last
memory = torch.cuda.memory
seen = {}


def ones(*shape, dtype=FLOAT):
    return torch.ones(*shape, dtype=dtype, device="cuda")


def case(name, function):
    """Note the allocs of a call; the inputs exist before, and the result is dropped.

    -1 comes before a request that is refused.
    """
    torch.cuda.synchronize()
    before = len(memory._snapshot()["device_traces"][0])
    try:
        result = function()
        failure = None
    except Exception as error:
        result, failure = None, f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    torch.cuda.synchronize()
    events = memory._snapshot()["device_traces"][0][before:]
    del result
    seen[name] = sizes = []
    for event in events:
        if event["action"] in ("alloc", "oom"):
            sizes += [-1, event["size"]] if event["action"] == "oom" else [event["size"]]
    if failure:
        seen[name].append(failure)
    memory._record_memory_history(enabled=None)
    memory._record_memory_history(max_entries=10_000, context=None)


def trained(name, layer, *inputs):
    """The forward and the backward call of a layer, each a case."""
    inputs = [each.requires_grad_() for each in inputs]
    kept = []

    def forward():
        out = layer(*inputs)
        kept.append(out[0] if isinstance(out, tuple) else out)

    case(f"{name}, forward", forward)
    if not kept:
        return
    gradient = torch.ones_like(kept[0])
    case(f"{name}, backward", lambda: kept[0].backward(gradient))


def begin():
    """Start PyTorch's memory history."""
    torch.cuda.init()
    memory._record_memory_history(max_entries=10_000, context=None)
