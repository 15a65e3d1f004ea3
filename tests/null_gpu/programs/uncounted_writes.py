"""Ways to write to a tensor that PyTorch does not count as a change of this tensor.

In each of these lines, something that the host does not know is written to `x`.
"""

import json
import sys

import torch

LINES = """
x.add_(u)
x.data.add_(u)
x.detach().add_(u)
x.set_(u)
x.view(torch.int32).geometric_(0.5)
x.unsafe_split(1)[0].copy_(u[:1])
x.unsafe_chunk(3)[2].geometric_(0.5)
x.untyped_storage().copy_(u.untyped_storage())
x.storage()[0] = u[0]
y = torch.empty(0, device="cuda").set_(x); y.copy_(u)
y = torch.empty(0, device="cuda").set_(x.untyped_storage(), 0, (3,)); y.geometric_(0.5)
y = u.clone(); y.data = x; y.copy_(u)
torch.from_dlpack(x).copy_(u)
torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).copy_(u)
torch.as_tensor(Interface(x), device="cuda").copy_(u)
torch.nn.Parameter(x).data.geometric_(0.5)
torch.add(u, 1, out=x)
torch.dot(u, u, out=x[0])
s, x = u.repeat(4000), u.repeat(3334); x[:9000] = 1; del x; x = s.view(2, -1).topk(5000)[0][0]
torch.max(u[None], 0, out=(x, torch.zeros(3, dtype=torch.long, device="cuda")))
torch.ops.aten.add_(x, u)
torch.ops.tests.write(x, u)
torch._foreach_add_([x], [u])
torch._foreach_lerp_([x], [u], 0.5)
torch._amp_foreach_non_finite_check_and_unscale_([u], x[:1], u[:1])
torch._C._nn.rrelu_with_noise(u, x, 0.1, 0.3, True)
torch.native_batch_norm(u[None], None, None, x, x, True, 0.1, 1e-5)
torch.ops.aten.native_batch_norm(u[None], None, None, x, x, True, 0.1, 1e-5)
torch.nn.functional.batch_norm(u.expand(4, 3), x, x, training=True)
torch.nn.functional.instance_norm(u[None, :, None].expand(1, 3, 4), x, x)
torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]).cuda(), x, (3,)).mul_(u[0])
x = updated(torch.optim.AdamW, "exp_avg", fused=True)
x = updated(torch.optim.AdamW, "exp_avg", foreach=True)
x = updated(torch.optim.AdamW, "exp_avg", capturable=True)
x = updated(torch.optim.SGD, "momentum_buffer", momentum=0.9, fused=True)
graph = captured(x, u); x.zero_(); graph.replay()
with torch.autograd._unsafe_preserve_version_counter(x): x.geometric_(0.5)
with torch.inference_mode(): x = torch.zeros(3, device="cuda"); x.geometric_(0.5)
with torch.inference_mode(): x = torch.zeros(3, device="cuda"); torch.mul(u, 2, out=x)
with torch.inference_mode(): x = torch.zeros(3, device="cuda"); torch._foreach_add_([x], [u])
with torch.inference_mode(): x.view(torch.int32).geometric_(0.5)
with torch.inference_mode(): x[1:].geometric_(0.5)
"""


class Interface:
    def __init__(self, tensor):
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def updated(optimizer, state, **options):
    parameter = torch.nn.Parameter(torch.ones(3, device="cuda"))
    parameter.grad = torch.empty(3, device="cuda").geometric_(0.5)
    made = optimizer([parameter], lr=0.1, **options)
    made.step()
    return made.state[parameter][state]


def captured(x, u):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(u)
    return graph


library = torch.library.Library("tests", "DEF")
library.define("write(Tensor(a!) x, Tensor y) -> ()")
library.impl("write", lambda x, y: x.untyped_storage().copy_(y.untyped_storage()) and None, "CUDA")


def in_place(name, x, u):
    """Call one of the functions that change lists of tensors."""
    for others in ([[u]], [[u], [u]], [[u], 0.5], [[u], [u], 1.0], [[0.5]], [0.5]):
        try:
            return getattr(torch, name)([x], *others)
        except (TypeError, RuntimeError):
            continue
    x.copy_(u)  # a function of one list, whose result is known if its argument is


of_lists = [name for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_")]
assert "_foreach_add_" in of_lists
reads = sys.modules["allocbench_inside"]._process._reads.sites
known = []
for line in [*LINES.strip().splitlines(), *(f"in_place({name!r}, x, u)" for name in of_lists)]:
    names = globals() | {
        "x": torch.zeros(3, device="cuda"),
        "u": torch.empty(3, device="cuda").geometric_(0.5),
    }
    exec(line, names)
    before = sum(reads.values())
    names["x"].tolist()
    if sum(reads.values()) == before:
        known.append(line)
print(json.dumps({"known": known}))
