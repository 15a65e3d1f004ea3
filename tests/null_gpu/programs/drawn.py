"""Random numbers that the host knows, although it draws others than a GPU would."""

import json
import sys

import torch
from torch import nn

READS = sys.modules["allocbench_inside"]._process._reads.sites


def both(draw):
    """Two draws after the same seed."""
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(draw().tolist())
    return found


def draws(seed, shape=(2000,)):
    ones = torch.ones(shape, device="cuda")
    whole = torch.zeros(shape, dtype=torch.long, device="cuda")
    generator = torch.Generator("cuda").manual_seed(seed)
    return {
        "rand": torch.rand(shape, device="cuda") < 0.25,
        "rand_like": torch.rand_like(ones) < 0.25,
        "half": torch.rand_like(ones, dtype=torch.half) < 0.25,
        "randn": torch.randn(shape, device="cuda") < -0.6745,
        "randn_like": torch.randn_like(ones) < -0.6745,
        "randint": torch.randint(4, shape, device="cuda") == 3,
        "low": torch.randint(low=2, high=6, size=shape, device="cuda") == 2,
        "randint_like": torch.randint_like(whole, high=4) == 0,
        "randperm": torch.randperm(2000, device="cuda") < 500,
        "generator": torch.rand(shape, generator=generator, device="cuda") < 0.25,
        "bernoulli": torch.bernoulli(ones / 4) > 0,
        "method": (ones / 4).bernoulli().bool(),
        "multinomial": torch.multinomial(torch.tensor([3.0, 1.0]).cuda(), 2000, True) == 1,
        "bernoulli_": torch.empty(shape, device="cuda").bernoulli_(0.25) == 1,
        "normal_": torch.empty(shape, device="cuda").normal_(1, 2) < 1 - 2 * 0.6745,
        "random_": torch.empty(shape, dtype=torch.long, device="cuda").random_(4) == 1,
        "uniform_": torch.empty(shape, device="cuda").uniform_(-1, 3) < 0,
    }


before = torch.random.get_rng_state()
found = draws(1)
with torch.inference_mode():
    found |= {f"{name}, inference": mask for name, mask in draws(2).items()}
with torch.device("cuda"):
    found["default"] = torch.rand(2000) < 0.25
counts = {name: len(mask.nonzero()) for name, mask in found.items()}
seen = {
    "reads": dict(READS),
    "unlike": {name: count for name, count in counts.items() if not 0.7 < count / 500 < 1.3},
    "different": len({tuple(mask.tolist()) for mask in found.values()}) / len(found),
    "of the host": torch.equal(before, torch.random.get_rng_state()),
}
seeded = [
    lambda: torch.rand(9, device="cuda"),
    lambda: torch.randperm(9, device="cuda"),
    lambda: torch.empty(9, device="cuda").uniform_(),
]
seen["repeated"] = [a == b for a, b in map(both, seeded)]
head = nn.AdaptiveLogSoftmaxWithLoss(8, 100, [10, 50]).cuda()
seen["targets"] = list(
    head(torch.rand(32, 8).cuda(), torch.randint(100, (32,)).cuda()).output.shape
)
ids = torch.randint(100, (32,), device="cuda")
seen["drawn targets"] = list(head(torch.rand(32, 8).cuda(), ids).output.shape)
edges = torch.rand(800_000, device="cuda") < 0.25
seen["edges"] = round(len(edges.nonzero()) / 100_000)
seen["too many"] = [len(torch.rand(2_000_000, device="cuda").nonzero())]
part = torch.empty(4, 4, device="cuda").geometric_(0.5)
part[1].uniform_()
weight = torch.randn(3, device="cuda", requires_grad=True)
seen["not known"] = [tensor.sum().item() for tensor in (part, weight)]
print(json.dumps(seen))
