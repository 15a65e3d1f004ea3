# SPDX-License-Identifier: Apache-2.0
"""A DLRM for click prediction: 26 embedding tables of very different sizes, and perceptrons.

Interesting for an allocator because nearly all memory is in blocks allocated once and never moved,
tables of 1.5 KB to 5.2 GB. A step needs little memory in comparison, in sizes that hardly recur:
each feature is a bag of ids whose number differs from batch to batch, and the sparse gradient of a
table is as long as its bag. In between are a few large blocks of regular sizes: the interactions of
every pair of features, and the wide top layers.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workshop.models.program import Mark, ModelProgram

SEED = 0

# Distinct values of each categorical feature of the Criteo Kaggle display advertising data.
CRITEO_KAGGLE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27),
    *(14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)


@dataclass(frozen=True)
class Config:
    """The model and its training."""

    tables: tuple[int, ...]  # number of rows of each table
    width: int
    dense: int  # dense features
    bottom: tuple[int, ...]  # layers for the dense features, before one of `width`
    top: tuple[int, ...]
    batch: int
    longest_bag: int
    steps: int
    learning_rate: float = 0.1


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers from each width to the next, each followed by a ReLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class EmbeddingTable(nn.Module):
    """An embedding table that pools bags of rows and trains itself by row-wise Adagrad.

    Only rows in the bags have a gradient, which is applied as soon as it exists, as in recommenders
    whose tables leave no room to store their gradients.
    """

    def __init__(self, rows: int, width: int, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.weight = nn.Parameter(torch.empty(rows, width), requires_grad=False)
        self.squares = nn.Parameter(torch.zeros(rows), requires_grad=False)
        nn.init.uniform_(self.weight, -(rows**-0.5), rows**-0.5)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Concatenated ids of all bags, and bag lengths (batch,) -> sums (batch, width)."""
        offsets = lengths.cumsum(0) - lengths
        pooled = functional.embedding_bag(ids, self.weight, offsets, mode="sum").requires_grad_()
        hook: Callable[[Tensor], None] = partial(self._learn, ids, lengths)
        pooled.register_hook(hook)  # type: ignore[no-untyped-call]
        return pooled

    @torch.no_grad()
    def _learn(self, ids: Tensor, lengths: Tensor, gradient: Tensor) -> None:
        rows = torch.repeat_interleave(gradient, lengths, dim=0, output_size=len(ids))
        self.squares.index_add_(0, ids, rows.square().mean(1))
        step = self.squares[ids].sqrt_().add_(1e-8).reciprocal_()
        self.weight.index_add_(0, ids, rows * step[:, None], alpha=-self.learning_rate)


class DLRM(nn.Module):
    """Dense features and pooled embeddings, the dot product of each pair of them, and a score."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            EmbeddingTable(rows, config.width, config.learning_rate) for rows in config.tables
        )
        self.bottom = perceptron(config.dense, *config.bottom, config.width)
        features = len(config.tables) + 1
        self.pairs = nn.Buffer(torch.tril_indices(features, features, offset=-1))
        self.top = perceptron(config.width + features * (features - 1) // 2, *config.top)
        self.score = nn.Linear(config.top[-1], 1)

    def forward(self, dense: Tensor, bags: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Features (batch, dense), and ids and lengths for each table -> logits (batch,)."""
        x = self.bottom(dense)
        pooled = [table(*bag) for table, bag in zip(self.tables, bags, strict=True)]
        features = torch.stack((x, *pooled), dim=1).type_as(x)
        products = torch.bmm(features, features.mT)[:, self.pairs[0], self.pairs[1]]
        logits: Tensor = self.score(self.top(torch.cat((x, products), dim=1)))
        return logits[:, 0]


def draw_bags(config: Config, draw: random.Random, device: str) -> list[tuple[Tensor, Tensor]]:
    """Random ids for each table, in bags of random lengths; their number is drawn on the host.

    Bags have 1 to `longest_bag` ids. For each table a total is drawn and distributed evenly,
    with the remainder added to the first bags.
    """
    bags = []
    for rows in config.tables:
        total = round(config.batch * draw.uniform(1, config.longest_bag))
        lengths = torch.full((config.batch,), total // config.batch, device=device)
        lengths[: total % config.batch] += 1
        bags.append((torch.randint(rows, (total,), device=device), lengths))
    return bags


def train(config: Config, device: str, mark: Mark) -> None:
    """Train on random clicks."""
    mark("init")
    with torch.device(device):
        model = DLRM(config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adagrad(trained, config.learning_rate, foreach=True)
    draw = random.Random(SEED)
    for _ in range(config.steps):
        mark("step")
        mark("forward")
        dense = torch.rand(config.batch, config.dense, device=device)
        bags = draw_bags(config, draw, device)
        clicked = torch.randint(2, (config.batch,), device=device).float()
        with torch.autocast(device, torch.bfloat16):
            logits = model(dense, bags)
        loss = functional.binary_cross_entropy_with_logits(logits.float(), clicked)
        del logits
        mark("backward")
        torch.autograd.backward(loss)
        mark("optimizer")
        optimizer.step()
        optimizer.zero_grad()
    mark("teardown")


PROGRAM = ModelProgram(
    run=train,
    full=Config(
        tables=CRITEO_KAGGLE,
        width=128,
        dense=13,
        bottom=(512, 256),
        top=(1024, 1024, 512, 256),
        batch=32768,
        longest_bag=8,
        steps=16,
    ),
    tiny=Config(
        tables=(60, 3, 200),
        width=8,
        dense=4,
        bottom=(16,),
        top=(32, 16),
        batch=64,
        longest_bag=4,
        steps=3,
    ),
    model="DLRM with the 26 tables of Criteo Kaggle, 128 wide, bags of up to 8 ids, batch 32768,"
    " bfloat16 autocast, row-wise Adagrad",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
