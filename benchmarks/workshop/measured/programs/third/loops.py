# SPDX-License-Identifier: Apache-2.0
"""Training loops around one transformer: graphs, streams, host memory, other optimizers."""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))
import measuring

WORDS = 16_000


class Model(nn.Module):
    """A transformer that predicts words."""

    def __init__(self, told: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, told.width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(told.width, 8, 4 * told.width, batch_first=True)
            for _ in range(6)
        )
        self.scores = nn.Linear(told.width, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss of each text, the mean of them."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.scores(x).flatten(0, 1), ids.flatten())


def graphs(told: argparse.Namespace, stages: measuring.Stages, model: Any) -> None:
    """Whole steps as one CUDA graph."""
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    ids = torch.zeros(told.batch, told.tokens, dtype=torch.long, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(ids).backward()
        optimizer.step()

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for number in range(told.steps):
        ids.copy_(torch.randint(0, WORDS, ids.shape))
        graph.replay()
        stages.reach(f"step {number + 1}")


def streams(told: argparse.Namespace, stages: measuring.Stages, model: Any) -> None:
    """The next batch is copied on a stream of its own while a step runs."""
    optimizer = torch.optim.AdamW(model.parameters())
    beside = torch.cuda.Stream()

    def fetch() -> torch.Tensor:
        with torch.cuda.stream(beside):
            ids = torch.randint(0, WORDS, (told.batch, told.tokens)).pin_memory()
            return ids.to("cuda", non_blocking=True)

    ready = fetch()
    for number in range(told.steps):
        torch.cuda.current_stream().wait_stream(beside)
        ready.record_stream(torch.cuda.current_stream())
        batch, ready = ready, fetch()
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()
        stages.reach(f"step {number + 1}")


def offloaded(told: argparse.Namespace, stages: measuring.Stages, model: Any) -> None:
    """What backward needs waits in host memory."""
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for number in range(told.steps):
        ids = torch.randint(0, WORDS, (told.batch, told.tokens), device="cuda")
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            value = model(ids)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        stages.reach(f"step {number + 1}")


def averaged(told: argparse.Namespace, stages: measuring.Stages, model: Any) -> None:
    """A moving average of the weights, a fused optimizer, and two passes for each step."""
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    kept = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)
    )
    for number in range(told.steps):
        ids = torch.randint(0, WORDS, (told.batch, told.tokens), device="cuda")
        model(ids).backward()
        slopes = [weight.grad for weight in model.parameters()]
        length = torch.stack(torch._foreach_norm(slopes)).norm()
        moves = torch._foreach_mul(slopes, 0.05 / (length + 1e-9))
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        model(ids).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()
        kept.update_parameters(model)
        stages.reach(f"step {number + 1}")


def searched(told: argparse.Namespace, stages: measuring.Stages, model: Any) -> None:
    """L-BFGS, which keeps ten gradients and evaluates the model again and again."""
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=10)
    ids = torch.randint(0, WORDS, (told.batch, told.tokens), device="cuda")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value: torch.Tensor = model(ids)
        value.backward()
        return value

    for number in range(told.steps):
        optimizer.step(closure)
        stages.reach(f"step {number + 1}")


def evaluated(told: argparse.Namespace, stages: measuring.Stages, model: Any) -> None:
    """Checkpoints in memory and an evaluation with larger batches between the steps."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    best = None
    for number in range(told.steps):
        for _ in range(2):
            ids = torch.randint(0, WORDS, (told.batch, told.tokens), device="cuda")
            optimizer.zero_grad()
            model(ids).backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            for _ in range(2):
                ids = torch.randint(0, WORDS, (3 * told.batch, told.tokens), device="cuda")
                model(ids)
        model.train()
        best = copy.deepcopy(model.state_dict())
        stages.reach(f"step {number + 1}")
    del best


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    model = Model(told).to("cuda")
    stages.reach("model")
    globals()[told.loop](told, stages, model)


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    kinds = ("graphs", "streams", "offloaded", "averaged", "searched", "evaluated")
    parser.add_argument("--loop", choices=kinds, required=True)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--width", type=int, default=512)
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
