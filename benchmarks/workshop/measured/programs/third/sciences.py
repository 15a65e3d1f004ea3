# SPDX-License-Identifier: Apache-2.0
"""Programs of physics, statistics, graphs, games and recommendation."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))
import measuring

Batch = dict[str, Any]
Made = tuple[nn.Module, Callable[[], Batch], Any]


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Spectral(nn.Module):
    """A layer of a Fourier neural operator in two dimensions."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        weight = torch.randn(width, width, modes, modes, dtype=torch.cfloat)
        self.weight = nn.Parameter(weight / width)
        self.plain = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The lowest frequencies, weighted, and the plain path."""
        seen, some = torch.fft.rfft2(x), self.modes
        made = torch.zeros_like(seen)
        low = seen[..., :some, :some]
        made[..., :some, :some] = torch.einsum("bixy,ioxy->boxy", low, self.weight)
        return functional.gelu(torch.fft.irfft2(made, s=x.shape[-2:]) + self.plain(x))


def operator(told: argparse.Namespace) -> Made:
    """A Fourier neural operator."""
    layers = (Spectral(told.width, 16) for _ in range(4))
    model = nn.Sequential(nn.Conv2d(3, told.width, 1), *layers, nn.Conv2d(told.width, 1, 1))

    def batch() -> Batch:
        return {"x": torch.rand(told.batch, 3, told.side, told.side)}

    return model, batch, lambda model, batch: model(batch["x"]).square().mean()


def equation(told: argparse.Namespace) -> Made:
    """A network that satisfies a differential equation of second order at random points."""
    model = perceptron(2, *[told.width] * 6, 1)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        points = batch["x"].requires_grad_()
        (slope,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
        (curve,) = torch.autograd.grad(slope[:, 0].sum(), points, create_graph=True)
        value: torch.Tensor = (slope[:, 1] - curve[:, 0]).square().mean()
        return value

    return model, lambda: {"x": torch.rand(told.batch, 2)}, loss


def flow(told: argparse.Namespace) -> Made:
    """A neural differential equation, integrated by the method of Runge and Kutta."""
    model = perceptron(64, told.width, told.width, 64)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        x, step = batch["x"], 0.05
        for _ in range(20):
            one = model(x)
            two = model(x + step / 2 * one)
            three = model(x + step / 2 * two)
            x = x + step / 6 * (one + 2 * two + 2 * three + model(x + step * three))
        value: torch.Tensor = x.square().mean()
        return value

    return model, lambda: {"x": torch.randn(told.batch, 64)}, loss


class Process(nn.Module):
    """The parameters of a Gaussian process."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.noise = nn.Parameter(torch.ones(8)), nn.Parameter(torch.tensor(0.1))


def process(told: argparse.Namespace) -> Made:
    """A Gaussian process with an exact likelihood: a Cholesky decomposition and solves."""

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        x, y = batch["x"] / model.scale, batch["y"]
        cover = torch.exp(-torch.cdist(x, x).square() / 2)
        cover = cover + model.noise.exp() * torch.eye(len(x), device=x.device)
        lower = torch.linalg.cholesky(cover)
        solved = torch.cholesky_solve(y, lower)
        value: torch.Tensor = (y.T @ solved).sum() / 2 + lower.diagonal().log().sum()
        return value

    def batch() -> Batch:
        return {"x": torch.rand(told.batch, 8), "y": torch.randn(told.batch, 1)}

    return Process(), batch, loss


class Decomposed(nn.Module):
    """Matrices that are decomposed in each step."""

    def __init__(self, told: argparse.Namespace) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(told.batch, told.side, told.side))


def decomposition(told: argparse.Namespace) -> Made:
    """Singular values, eigenvalues, orthogonal factors, inverses and sorted values."""

    def loss(model: Any, _batch: Batch) -> torch.Tensor:
        weight = model.weight
        values = torch.linalg.svdvals(weight).sum()
        values = values + torch.linalg.eigvalsh(weight @ weight.mT).sum()
        upper = torch.linalg.qr(weight)[1].diagonal(dim1=-2, dim2=-1).abs().sum()
        ordered = weight.flatten().sort()[0].cumsum(0)[-1]
        found: torch.Tensor = values + upper + ordered + torch.linalg.inv(weight).mean()
        return found

    return Decomposed(told), dict, loss


class Messages(nn.Module):
    """Graph convolutions with attention, by indices."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.weights = nn.ModuleList(nn.Linear(2 * width, 1) for _ in range(3))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """What each node holds after three rounds."""
        source, target = edges
        for layer, weights in zip(self.layers, self.weights, strict=True):
            sent = layer(x)
            heard = weights(torch.cat([sent[source], sent[target]], 1)).sigmoid()
            x = torch.zeros_like(x).index_add(0, target, sent[source] * heard)
            x = functional.dropout(x.relu(), 0.2)
        return x


def graph(told: argparse.Namespace) -> Made:
    """A graph of random edges, 16 for each node."""

    def batch() -> Batch:
        edges = torch.randint(0, told.batch, (2, 16 * told.batch))
        return {"x": torch.rand(told.batch, told.width), "edges": edges}

    return Messages(told.width), batch, lambda model, batch: model(**batch).square().mean()


class Clicks(nn.Module):
    """Sums of embeddings with sparse gradients, and a perceptron."""

    def __init__(self, width: int, *, sparse: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(100_000, width, mode="sum", sparse=sparse) for _ in range(8)
        )
        self.top = perceptron(8 * width, 512, 256, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The score of each row."""
        found: torch.Tensor = self.top(
            torch.cat([table(some) for table, some in zip(self.tables, ids, strict=True)], 1)
        )
        return found


def clicks(told: argparse.Namespace) -> Made:
    """Recommendation: which rows are clicked on."""

    def batch() -> Batch:
        return {"ids": torch.randint(0, 100_000, (8, told.batch, 10))}

    model = Clicks(told.width, sparse=told.optimizer in ("SGD", "Adagrad", "SparseAdam"))
    return model, batch, lambda model, batch: model(batch["ids"]).sigmoid().mean()


class Player(nn.Module):
    """Scores of actions and the value of what is seen, from four frames."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Sequential(
            *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
        )
        self.acts, self.value = nn.Linear(512, 6), nn.Linear(512, 1)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and values."""
        seen = self.seen(frames / 255.0)
        return self.acts(seen), self.value(seen)


def games(told: argparse.Namespace) -> Made:
    """A player of games: 128 moves without gradients, then what was seen, in four parts."""

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        frames, chosen = [], []
        with torch.no_grad():
            for _ in range(128):
                frames.append(torch.randint(0, 256, (told.batch, 4, 84, 84), device="cuda"))
                scores, _ = model(frames[-1].to(torch.uint8))
                chosen.append(torch.distributions.Categorical(logits=scores).sample())
        every, acts = torch.cat(frames).to(torch.uint8), torch.cat(chosen)
        order = torch.randperm(len(every), device="cuda").chunk(4)
        value = torch.zeros((), device="cuda")
        for some in order:
            scores, worth = model(every[some])
            log = torch.distributions.Categorical(logits=scores).log_prob(acts[some])
            value = value - log.mean() + worth.square().mean()
        return value

    return Player(), dict, loss


def learning(told: argparse.Namespace) -> Made:
    """Learning to learn: gradients through the steps of many tasks at once."""
    model = perceptron(16, told.width, told.width, 1)

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        weights = dict(model.named_parameters())

        def error(weights: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(model, weights, (x,)).square().mean()

        def task(x: torch.Tensor) -> torch.Tensor:
            kept = weights
            for _ in range(3):
                slopes = torch.func.grad(error)(kept, x)
                kept = {name: kept[name] - 0.1 * slopes[name] for name in kept}
            return error(kept, x)

        value: torch.Tensor = torch.func.vmap(task)(batch["x"]).mean()
        return value

    return model, lambda: {"x": torch.rand(told.batch, 64, 16)}, loss


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    model, batch, loss = globals()[told.model](told)
    model.to("cuda")
    stages.reach("model")

    def batches() -> Iterator[Batch]:
        for _ in itertools.count():
            yield {name: tensor.to("cuda") for name, tensor in batch().items()}

    measuring.train(told, stages, model, batches(), loss)


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    kinds = (
        "operator",
        "equation",
        "flow",
        "process",
        "decomposition",
        "graph",
        "clicks",
        "games",
        "learning",
    )
    parser.add_argument("--model", choices=kinds, required=True)
    parser.add_argument("--side", type=int, default=128, help="pixels, or rows of a matrix")
    parser.add_argument("--width", type=int, default=64)
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
