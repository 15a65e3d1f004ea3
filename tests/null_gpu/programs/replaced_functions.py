"""Functions of PyTorch that are followed on the host are what programs expect of PyTorch's own."""

import json
import pickle
import warnings

import torch
from torch.overrides import TorchFunctionMode

OWN = {torch.stack: "stack", torch.ones_like: "ones_like", torch.Tensor.add: "add"}
CALLED = []
NOTED = []


class Result:
    """Has functions of its own, as TensorDict has."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        return OWN[function]


class Marked(torch.Tensor):
    """Notes what is called, as torchvision's TVTensor does."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        CALLED.append(function)
        return super().__torch_function__(function, types, arguments, options or {})


class Noted(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        NOTED.append(function)
        return function(*arguments, **(options or {}))


with torch.device("cuda"):
    made = [torch.zeros(2), torch.tensor([1]), torch.arange(3), torch.nn.Linear(2, 2).weight]
    assert all(tensor.is_cuda for tensor in made)
torch.set_default_device("cuda")
assert torch.ones(2).is_cuda
assert torch.zeros(size=(2,)).tolist() == [0, 0]
torch.set_default_device("cpu")
assert not torch.ones(2).is_cuda

assert torch.stack([Result(), Result()]) == "stack"
assert torch.ones_like(Result()) == "ones_like"
marked = torch.ones(3, device="cuda").as_subclass(Marked).to("cpu")
assert type(marked) is Marked
assert torch.Tensor.to in CALLED
with Noted():
    assert torch.cat([torch.ones(2, device="cuda")] * 2).sum().item() == 4
assert {torch.ones, torch.cat, torch.Tensor.sum} <= set(NOTED)
CALLED.clear(), NOTED.clear()
expected = [torch.Tensor.view, torch.Tensor.data_ptr, torch.Tensor.add]
marked = torch.ones(4, device="cuda").as_subclass(Marked)
marked.view(2, 2), marked.data_ptr(), marked.add(1)
assert expected == CALLED
plain = torch.ones(4, device="cuda")
with Noted():
    plain.view(2, 2), plain.data_ptr(), plain.add(1)
assert expected == NOTED
for function in (torch.add, torch.Tensor.add, torch.Tensor.view):
    assert pickle.loads(pickle.dumps(function)) is function
lazy = torch.nn.Sequential(torch.nn.LazyConv2d(4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(5))
assert lazy.cuda().half().float().to("cuda")(torch.zeros(2, 3, 8, 8, device="cuda")).shape == (2, 5)
with warnings.catch_warnings(action="ignore"):  # masked tensors are a prototype
    data, mask = torch.ones(2, 3), torch.tensor([[True, False, True]] * 2)
    masked = torch.masked.masked_tensor(data.cuda(), mask.cuda())
    assert masked.sum(1).shape == (2,)
    assert torch.sum(masked, 0).shape == (3,)


def total(x):
    return torch.cat([x, x.add(1)]).sum(0).clamp(min=0) + torch.ones_like(x).mean()


graph = torch.fx.symbolic_trace(total)
assert graph(torch.ones(2, 3, device="cuda")).shape == (3,)
before = torch.arange(4, device="cuda").sum().item()
compiled = torch.compile(total, backend="eager", fullgraph=True)
assert compiled(torch.ones(2, 3, device="cuda")).shape == (3,)
after = torch.arange(4, device="cuda").sum().item()
print(json.dumps({"before": before, "after": after}))
