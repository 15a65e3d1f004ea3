"""What the host knows of tensors on the GPU: each expression also runs on the CPU."""

import json

import torch
from torch.nn import functional

EXPRESSIONS = """
x.max().item()
x.tolist()
list(map(int, x))
x.numpy(force=True).tolist()
x.expand(3, 5).t()[::2].cpu().tolist()
x.float().mean().item()
x.reshape(5, 1).expand(5, 2).contiguous().sum().item()
x.sort(descending=True)[0].tolist()
x.median().item(), x.mode()[0].item(), x.kthvalue(2)[0].item(), x.cummax(0)[0].tolist()
x.clamp_min(1).tolist(), x.float().exp().log().round().tolist(), (2**x).tolist()
x.new_empty(5).copy_(x).index_add(0, x[3:], x[3:]).tolist()
torch.empty_like(x).scatter_(0, x.argsort(), x).tolist()
torch.empty(6, dtype=x.dtype, device=x.device).index_fill_(0, x, 4)[x].tolist()
torch.nn.utils.rnn.pad_sequence([x, x[:2]], batch_first=True).tolist()
list(torch.arange(x.max()).shape), torch.arange(x[0], x[2] + 1, device=x.device).tolist()
list(torch.zeros(x[0], x[2]).shape), list(torch.empty((x[0], 2)).shape), len(torch.rand(x[0]))
list(wide.expand(x[0], 5, 7).shape), list(wide.view(1, x[2], -1).shape), list(wide[: x[0]].shape)
list(wide.narrow(0, 0, x[0]).shape), list(wide.topk(x[0]).values.shape), len(wide.chunk(x[2]))
[len(part) for part in torch.zeros(12, device=x.device).split([*x])]
x.split([2, 3])[1].tolist()
x.clone().fill_(3).tolist(), [y := x.float(), y[1::2].fill_(-0.5), y[2].fill_(0), y.tolist()][3]
[x.new_full((3,), -7, dtype=t).tolist() for t in (torch.int8, torch.int64, torch.half, torch.float)]
[y := x.double().fill_(2), y.zero_(), y.tolist(), x.bool().fill_(True).tolist()][2:]
x.new_zeros(3).add_(2).tolist()
[y := x.clone(), y[1].add_(10), y[2].add_(2, alpha=3), y.max().add_(-4), y.tolist()][3:]
[y := x.clone(), y[1:3].copy_(torch.tensor([8, 9])), y.tolist()][2:]
x[: x[0]].tolist()
x[x > 0].tolist()
torch.func.vmap(lambda row: row + 1)(x).tolist()
x[x > 100].tolist()
x.nonzero().tolist()
x.masked_select(x > 0).tolist()
bool((x != 1).all()), 2 in x, f"{x[0]:d}", torch.is_nonzero(x[0])
torch.tensor([x[0], x[1]]).tolist()
torch.arange(5, device=x.device)[x > 1].tolist()
[torch.arange(*n, device=x.device).tolist() for n in ([0], [4], [2, 5], [9, -3, -2], [0, 3, 0.5])]
[torch.arange(3, device=x.device, dtype=t).tolist() for t in (torch.int32, torch.int64, torch.half)]
torch.func.vmap(lambda row: row + torch.arange(2, device=x.device))(x[:, None]).tolist()
torch.argwhere(x).tolist()
torch.bincount(x).tolist()
torch.bincount(x, minlength=10).tolist()
torch.cat([x, torch.ones_like(x)]).sum().item()
torch.equal(x, x)
torch.full((2,), 7, device=x.device).sum().item()
torch.repeat_interleave(x).tolist()
torch.repeat_interleave(x, x).tolist()
torch.repeat_interleave(x[None], x[:1], dim=1).tolist()
torch.sparse_coo_tensor(torch.stack([x, x]), x.clone(), (9, 9)).coalesce()._nnz()
torch.stack([x, x]).view(-1)[2:4].tolist()
torch.unique(x, return_counts=True)[1].tolist()
torch.unique(x[None], dim=1).tolist()
torch.unique_consecutive(x).tolist()
torch.where(x > 0)[0].tolist()
torch.zeros(3, dtype=torch.bool, device=x.device).logical_or_(x[:3] > 2).tolist()
functional.one_hot(x).tolist()
functional.one_hot(x, 9).tolist()
functional.pad(x.cumsum(0), (1, 0)).tolist()
list(wide[x > 1].shape)
list(wide.masked_select((x > 2)[:, None]).shape)
list(wide.repeat_interleave(x, 0).shape)
[part.tolist() for part in torch.where(x[:, None] > torch.arange(3, device=x.device))]
[part.tolist() for part in x.view(5, 1).expand(5, 2).contiguous().nonzero(as_tuple=True)]
"""


def found(device):
    names = {"torch": torch, "functional": torch.nn.functional}
    names["x"] = torch.tensor([3, 0, 5, 2, 2]).to(device)
    names["wide"] = torch.randn(5, 7, device=device)
    return [eval(line, names) for line in EXPRESSIONS.strip().splitlines()]


lines = EXPRESSIONS.strip().splitlines()
both = zip(lines, found("cpu"), found("cuda"), strict=True)
seen = {"different": [line for line, there, here in both if there != here]}

x, wide = torch.tensor([3, 0, 5, 2, 2]).cuda(), torch.empty(5, 7, device="cuda").geometric_(0.5)
changed = torch.zeros(2, 3, device="cuda")
changed[:, 1] = 4
changed[0, :1] += 2
here = torch.empty(2, 3)
here.copy_(changed)
with torch.inference_mode():
    flags = x + 1
    flags |= 8
seen["changed"] = [changed.tolist(), here.tolist(), flags.tolist()]
changed += wide[:2, :3]
flags = x.clone()
flags.geometric_(0.5)
part = torch.empty(4, device="cuda").geometric_(0.5)
part[1:].zero_()
try:
    x[9]
except IndexError:
    seen["raised"] = True
seen["unknown"] = [tensor.sum().item() for tensor in (changed, flags, part)]
gradients = []
for mask in (x > 1, wide[:, 0] > 0):
    weight = torch.randn(5, 7, device="cuda", requires_grad=True)
    (weight * 2)[mask].sum().backward()
    gradients.append(list(weight.grad.shape))
weight = torch.randn(5, 7, device="cuda", requires_grad=True)
rows = (weight * 2).view(5, 7)
rows[x > 1] = 0
rows[(x > 2)[:, None].expand(5, 7)] = 0
rows.index_put((x > 1,), torch.zeros(7, device="cuda")).sum().backward()
matrices = torch.randn(8, 4, 4, device="cuda", requires_grad=True)
torch.linalg.matrix_exp(matrices).sum().backward()
seen["backward"] = [*gradients, list(matrices.grad.shape)]
seen["finite"] = [bool(torch.isfinite(wide).all()), bool(torch.isnan(wide).any())]
sparse = torch.nn.Embedding(9, 4, sparse=True, device="cuda")
optimizer = torch.optim.SparseAdam(sparse.parameters())
sparse(torch.zeros(3, 5, dtype=torch.long, device="cuda").geometric_(0.5)).sum().backward()
optimizer.step()
seen["distinct"] = sparse.weight.grad.coalesce()._nnz()
padded = torch.nn.Embedding(9, 4, padding_idx=0, sparse=True, device="cuda")
looked_up = torch.tensor([[0, 3, 4], [0, 0, 4]]).cuda()
for index in (looked_up, looked_up.clone().geometric_(0.5)):
    padded.weight.grad = None
    padded(index).sum().backward()
    seen.setdefault("without padding", []).append(padded.weight.grad._nnz())
compiled = torch.compile(lambda x: (x + torch.ones_like(x)).sum(), backend="eager")
seen["compiled"] = list(compiled(x).shape)


@torch.jit.script
def scripted(x: torch.Tensor, count: int) -> torch.Tensor:
    ones = torch.ones(count, device=x.device)
    return torch.cat([ones, torch.zeros_like(ones), functional.pad(ones, [1, 1])])


seen["scripted"] = float(len(scripted(x, 5)) - 8)


@torch.jit.script
def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y + 1).tanh() * x  # a kernel of its own from the third call on


starts, weight = torch.tensor([0, 3, 7]).cuda(), torch.randn(7, device="cuda", requires_grad=True)
for _ in range(4):
    fused(weight, weight + 1).sum().backward()
seen["fused"] = (starts[1:] - starts[:-1]).tolist()
print(json.dumps(seen))
