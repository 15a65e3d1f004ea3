# SPDX-License-Identifier: Apache-2.0
"""Train a language model of LSTM or GRU layers."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import measuring
import torch

WORDS = 32_000


class Model(torch.nn.Module):
    """An embedding, recurrent layers, and scores of all words."""

    def __init__(self, told: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, told.width)
        self.layers = getattr(torch.nn, told.cell)(
            told.width, told.width, told.layers, batch_first=True, bidirectional=told.both_ways
        )
        self.scores = torch.nn.Linear(told.width * (2 if told.both_ways else 1), WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of each word at each place."""
        scores: torch.Tensor = self.scores(self.layers(self.embedding(ids))[0])
        return scores


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    model = Model(told).to("cuda")
    stages.reach("model")

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        for _ in itertools.count():
            ids = torch.randint(0, WORDS, (told.batch, told.tokens + 1))
            yield {"ids": ids[:, :-1].to("cuda"), "next": ids[:, 1:].to("cuda")}

    def loss(called: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        scores = called(batch["ids"])
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch["next"].flatten())

    measuring.train(told, stages, model, batches(), loss)


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--cell", choices=("LSTM", "GRU", "RNN"), required=True)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--both-ways", action="store_true")
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
