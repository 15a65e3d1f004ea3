"""Random programs on small tensors, on the CPU and on the null GPU at once.

Whatever the null GPU lets the host read as known must be what the CPU has. Arguments: the first
seed, the number of programs, the most steps of each.
"""

import copy
import json
import math
import pickle
import random
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch

warnings.simplefilter("ignore")
FIRST, COUNT, STEPS = map(int, sys.argv[1:])
inside = sys.modules["allocbench_inside"]
READS = inside._process._reads.sites
# What is not known must not become a possible value.
follower = inside._process._follower
for name, begin in follower._special.items():
    if begin.__name__ in ("_chosen", "_clamped", "_counted"):
        follower._special[name] = follower.computed
inside.Guesses._chosen = lambda *_arguments: None
WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64)
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class World:
    """The tensors of one device. Choices depend only on shapes and types, and so agree."""

    def __init__(self, device):
        self.device, self.tensors = device, []
        self.noted, self.lines = [], []

    def do(self, r, ways):
        """Do one of these; `lines` has the lines of what was done."""
        way = r.choice(ways)
        self.lines.append(way.__code__.co_firstlineno)
        return way()

    def choose(self, r, *, like=None, whole=False):
        fits = [
            x
            for x in self.tensors
            if (like is None or x.shape == like.shape)
            and (not whole or x.dtype in (torch.int64, torch.int32))
        ]
        return r.choice(fits)

    def flags(self, r, shape):
        """A mask, mostly of values that the host knows."""
        drawn = torch.tensor([r.random() < 0.5 for _ in range(math.prod(shape))])
        mask = drawn.reshape(shape).to(self.device)
        return mask if r.random() < 0.8 else mask.logical_or(hidden(mask, r) > 100)


def shape_of(r):
    return tuple(r.choice((0, 1, 2, 3, 3, 4)) for _ in range(r.choice((0, 1, 1, 2, 2, 3))))


def created(world, r):
    shape, dtype, device = shape_of(r), r.choice(WHOLE + REAL), world.device
    numbers = [r.choice((0, 1, 2, 3, 5, 100)) for _ in range(math.prod(shape))]
    here = torch.tensor(numbers, dtype=torch.int32).reshape(shape).to(dtype)
    n = r.randrange(6)
    ways = (
        lambda: here.to(device),
        lambda: torch.empty(shape, dtype=dtype, device=device).copy_(here),
        lambda: torch.zeros(shape, dtype=dtype, device=device),
        lambda: torch.full(shape, n % 2, dtype=dtype, device=device),
        lambda: torch.arange(n, device=device),
        lambda: torch.ones_like(world.choose(r)),
        lambda: torch.empty(shape, dtype=dtype, device=device).fill_(1),
        lambda: torch.from_numpy(here.float().numpy()).to(device, non_blocking=True),
        lambda: world.choose(r).new_full(shape, 1),
        lambda: torch.as_tensor(numbers, device=device),
        lambda: torch.empty_like(here, device=device).zero_(),
        lambda: hidden(torch.zeros(shape, device=device), r),
        lambda: torch.zeros(shape, dtype=torch.float32, device=device, requires_grad=True).detach(),
    )
    return world.do(r, ways)


def hidden(x, r):
    """Values that the host does not know, of the shape of a tensor."""
    drawn = torch.empty(x.shape, device=x.device)  # the host does not draw such numbers
    drawn.geometric_(0.5, generator=torch.Generator(x.device))
    return torch.sin(x.double() + r.randrange(9) + drawn).mul(7)


def viewed(world, r):
    x = world.choose(r)
    size = x.shape[0] if x.dim() else 0
    at = r.randrange(size) if size else 0
    ways = (
        lambda: x[at:],
        lambda: x[at],
        lambda: x.t(),
        lambda: x.reshape(-1),
        lambda: x[None].expand(3, *x.shape),
        lambda: x.detach(),
        lambda: x.data,
        lambda: x.view(x.shape),
        lambda: x.as_strided((max(size, 1),), (1,)) if x.numel() else x,
        lambda: x.unsqueeze(0).transpose(0, -1),
        lambda: x[..., :1],
        lambda: x.split(2)[0],
        lambda: x.view(torch.int8),
        lambda: x.flip(0).contiguous(),
        lambda: torch.empty(0, dtype=x.dtype, device=x.device).set_(x),
        lambda: x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride()),
        lambda: x.unsafe_split(2)[0],
        lambda: torch.nn.Parameter(x, requires_grad=False),
        lambda: x.diagonal(),
        lambda: x.unbind(0)[at],
        lambda: torch.as_tensor(x),
        lambda: x.contiguous(),
    )
    return world.do(r, ways)


def computed(world, r):
    x = world.choose(r)
    y, n = world.choose(r, like=x), r.randrange(1, 4)
    ways = (
        lambda: x + y,
        lambda: x * n,
        lambda: n - x.to(torch.int32),
        lambda: x < y,
        lambda: x == n,
        lambda: (x > 1) & (y < 3),
        lambda: x.sum(),
        lambda: x.sum(0),
        lambda: x.float().mean(),
        lambda: x.to(r.choice(WHOLE[1:])),
        lambda: x.to(r.choice(REAL)),
        lambda: x.cumsum(0),
        lambda: x.sort(stable=True)[0],
        lambda: x.max(),
        lambda: x.float().argmax(),
        lambda: x.any(),
        lambda: (x != 0).all(0),
        lambda: torch.cat([x, y]),
        lambda: torch.stack([x, y], -1),
        lambda: torch.where(x > y, x, y),
        lambda: x.masked_fill(world.flags(r, x.shape), n),
        lambda: x.clone(),
        lambda: copy.deepcopy(x),
        lambda: x.clamp(max=n),
        lambda: x.clamp(0, 2).long().bincount(),
        lambda: x.clamp(0, 3).long().flatten().unique(),
        lambda: x.nonzero(),
        lambda: x[world.flags(r, x.shape)],
        lambda: x.clamp(0, 3).to(torch.int64).repeat_interleave(2),
        lambda: torch.nn.functional.pad(x, (1, 1)),
        lambda: torch.nn.functional.one_hot(x.clamp(0, 3).long()),
        lambda: x.roll(1, 0),
        lambda: x.tril(),
        lambda: x.topk(1).values,
        lambda: x.float().softmax(-1),
        lambda: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
        lambda: x.float().div(y.float() + 200),
        lambda: x.new_tensor([n, 0]),
        lambda: torch.tensor([x.flatten()[0], n], device=x.device),
        lambda: x.cpu().clone().to(x.device),
        lambda: torch.func.vmap(lambda row: row + 1)(x),
        lambda: hidden(x, r),
        lambda: x.double().dot(y.double()),
        lambda: x.logical_not(),
        lambda: x.to("cpu", non_blocking=True).add(1).to(x.device),
        lambda: x.take_along_dim(torch.zeros_like(x, dtype=torch.int64), 0),
        lambda: torch.isfinite(x),
        lambda: x.index_select(0, torch.tensor([0, 0], device=x.device)),
        lambda: torch.empty_like(x).scatter_(0, x.argsort(0, stable=True), y),
        lambda: x.new_empty(len(x) + 1).index_fill_(
            0, torch.arange(len(x) + 1, device=x.device), n
        ),
        lambda: torch.arange(x.flatten()[0].clamp(0, 9).long(), device=x.device),
        lambda: x.new_ones(x.count_nonzero()),
        lambda: x.median(),
        lambda: x.kthvalue(1, 0).values,
        lambda: x.cummax(0).values,
        lambda: x.clamp_min(1).trunc(),
        lambda: torch.concatenate([x, y]),
        lambda: torch.nn.utils.rnn.pad_sequence([x, y[:1]]),
        lambda: x.index_add(0, torch.zeros(len(x), dtype=torch.int64, device=x.device), y),
        lambda: x.masked_scatter(world.flags(r, x.shape), y),
        lambda: x.outer(y),
    )
    return world.do(r, ways)


def written(world, r):
    x = world.choose(r)
    y, n = world.choose(r, like=x), r.randrange(1, 4)
    unknown = hidden(x, r).to(x.dtype)
    value = r.choice((y, y, unknown))
    ways = (
        lambda: x.add_(value),
        lambda: x.mul_(n),
        lambda: x.copy_(value),
        lambda: x.copy_(value.flatten()[0]),
        lambda: x.fill_(n),
        lambda: x.fill_(value.flatten()[0]),
        lambda: x.zero_(),
        lambda: x.data.copy_(value),
        lambda: x.data.fill_(n),
        lambda: x.detach().sub_(value),
        lambda: x.__setitem__(0, n),
        lambda: x.__setitem__(slice(1), value[:1]),
        lambda: x.__setitem__(world.flags(r, x.shape), n),
        lambda: x.__setitem__((..., 0), value.flatten()[0]),
        lambda: x.masked_fill_(world.flags(r, x.shape), value.flatten()[0]),
        lambda: x.index_put_((torch.tensor([0], device=x.device),), value[0]),
        lambda: x.scatter_(0, torch.zeros_like(x, dtype=torch.int64)[:1], n),
        lambda: x.index_fill_(0, torch.tensor([0], device=x.device), n),
        lambda: x.clamp_(max=n),
        lambda: x.neg_(),
        lambda: x.relu_(),
        lambda: x.t_(),
        lambda: x.cumsum_(0),
        lambda: x.clamp_min_(n),
        lambda: x.pow_(2),
        lambda: x.tril_(),
        lambda: x.masked_scatter_(world.flags(r, x.shape), value.clone()),
        lambda: x.put_(torch.tensor([0], device=x.device), value.flatten()[:1]),
        lambda: x.geometric_(0.5, generator=torch.Generator(x.device)),
        lambda: x.untyped_storage().fill_(0),
        lambda: x.untyped_storage().copy_(unknown.contiguous().untyped_storage()),
        lambda: x.resize_(x.numel() + 1).fill_(1),
        lambda: torch.add(y, value, out=x),
        lambda: torch.add(y[:1], n, out=x[:1]),
        lambda: torch.cumsum(value, 0, out=x),
        lambda: torch.mul(unknown, 2, out=x),
        lambda: torch._foreach_add_([x], [value]),
        lambda: torch._foreach_zero_([x]),
        lambda: torch._foreach_copy_([x], [value]),
        lambda: torch._foreach_lerp_([x], [value], 0.5),
        lambda: torch.ops.aten.copy_(x, unknown),
        lambda: torch.from_dlpack(x).copy_(value),
        lambda: torch.utils.dlpack.from_dlpack(x).fill_(n),
        lambda: x.set_(unknown),
        lambda: setattr(x, "data", unknown),
        lambda: in_thread(lambda: x.copy_(value)),
        lambda: torch.vmap(lambda row: row.mul_(n))(x),
        lambda: x.logical_and_(value),
        lambda: x.__iadd__(value),
        lambda: x.index_add_(0, torch.zeros(len(x), dtype=torch.int64, device=x.device), value),
        lambda: torch.utils.swap_tensors(x, unknown),
        lambda: Written.apply(x, value),
        lambda: scripted(x, value),
        lambda: x.as_subclass(Marked).copy_(value),
        lambda: x.map_(value, lambda a, b: b) if x.device.type == "cpu" else x.copy_(unknown),
    )
    world.do(r, ways)


def special(world, r):
    """Functions that change tensors in ways of their own."""
    x = world.choose(r)
    floats = torch.ones(4, 3, device=x.device) * (1 if r.random() < 0.5 else hidden(x, r).numel())
    state = torch.zeros(3, device=x.device)
    norm, other = torch.nn.BatchNorm1d(3).to(x.device), torch.ones(3, device=x.device)
    parameter = torch.nn.Parameter(torch.ones(3, device=x.device))
    parameter.grad = torch.zeros(3, device=x.device)
    optimizer = r.choice((torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop))

    def trained():
        (parameter * state).sum().backward()
        optimizer([parameter], lr=0.1, foreach=r.random() < 0.5).step()
        return parameter.grad

    def batches():
        norm(hidden(floats, r).float())
        return r.choice((norm.running_mean, norm.running_var, norm.num_batches_tracked))

    def sparse():
        made = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]], device=x.device), state, (3,))
        made._values().add_(1)
        return state

    def unscaled():
        scale = torch.full((1,), 2.0, device=x.device)
        torch._amp_foreach_non_finite_check_and_unscale_([other], state[:1], scale)
        return other

    return world.do(r, (trained, batches, sparse, unscaled))


def note(world, r):
    """Read a tensor in one of the ways of a program; the values, or None if they are not known."""
    x = world.choose(r)
    before = sum(READS.values())
    ways = (
        lambda: x.tolist(),
        lambda: x.cpu().tolist(),
        lambda: x.numpy(force=True).tolist(),
        lambda: torch.empty(x.shape, dtype=x.dtype).copy_(x).tolist(),
        lambda: x.double().sum().item(),
        lambda: bool(x.any()),
        lambda: list(x.nonzero().shape),
        lambda: int(x.flatten()[0]),
        lambda: [float(element) for element in x.flatten()[:2]],
        lambda: pickle.loads(pickle.dumps(x)).tolist(),
        lambda: list(range(int(x.flatten()[0]) % 5)),
        lambda: "yes" if (x > 1).all() else "no",
    )
    value = world.do(r, ways)
    known = sum(READS.values()) == before
    world.noted.append(value if known else None)


class Written(torch.autograd.Function):
    @staticmethod
    def forward(context, x, value):
        context.mark_dirty(x)
        return x.copy_(value)


class Marked(torch.Tensor):
    pass


@torch.jit.script
def scripted(x, value):
    return x.copy_(value)


def in_thread(function):
    with ThreadPoolExecutor(1) as threads:
        threads.submit(function).result()


def same(there, here):
    if here is None:
        return True
    if isinstance(here, list) and isinstance(there, list):
        return len(there) == len(here) and all(map(same, there, here))
    if isinstance(here, float) and isinstance(there, float):
        equal = math.isclose(there, here, rel_tol=1e-2, abs_tol=1e-2)
        return equal or (math.isnan(there) and math.isnan(here))
    return there == here


ACTIONS = (created, viewed, viewed, computed, computed, written, written, written, special)


def does(action, world, choice):
    """Whether a program can do this."""
    world.noted, world.lines = [], []
    try:
        made = action(world, random.Random(choice))
    except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
        return False
    if isinstance(made, torch.Tensor):
        world.tensors.append(made)
    return True


def alike(there, here):
    return len(there.tensors) == len(here.tensors) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
        for a, b in zip(there.tensors, here.tensors, strict=True)
    )


def run(seed):
    """Run one program; what differs between the devices, the number of reads, and of known ones."""
    there, here = worlds = [World("cpu"), World("cuda")]
    choices, reads, known = random.Random(seed), 0, 0
    for world in worlds:
        world.tensors = [
            torch.arange(3, device=world.device),
            torch.ones(2, 3, device=world.device),
        ]
    for _ in range(STEPS):
        lines = []
        for action in (choices.choice(ACTIONS), note):
            choice, before = choices.random(), sum(READS.values())
            done = [does(action, world, choice) for world in worlds]
            if not all(done) or not alike(*worlds):
                return None, reads, known  # from here on, the programs differ
            if action is not note and sum(READS.values()) > before:
                return None, reads, known  # a wrong value is on the host, and this was counted
            lines += here.lines
        reads, known = reads + 1, known + (here.noted != [None])
        if not same(there.noted, here.noted):
            return [seed, lines, there.noted, here.noted], reads, known
    return None, reads, known


results = []
for seed in range(FIRST, FIRST + COUNT):
    with torch.inference_mode(seed % 4 == 0):
        results.append(run(seed))
different = [result[0] for result in results if result[0]]
print(
    json.dumps(
        {
            "different": different[:5],
            "reads": sum(result[1] for result in results),
            "known": sum(result[2] for result in results),
        }
    )
)
