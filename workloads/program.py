# SPDX-License-Identifier: Apache-2.0
"""What a program must say of itself to be captured, and how one is run on its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Config = TypeVar("Config")

Mark = Callable[[str], None]
"""Called with a label where a step ("step") or a phase ("forward", ...) begins."""


@dataclass(frozen=True)
class Program(Generic[Config]):
    """A PyTorch program whose allocations are worth a trace.

    run: builds, runs and drops the model: `run(config, device, mark)`.
    full: the configuration captured; tiny: one that a CPU really runs, in seconds.
    model: what is run, for the provenance.
    seed: of every draw in `run` that decides a size.
    expects, forbids: operators that must, or must not, have run in a capture of `full`, such as
        "aten::mm", or "aten::mm:bfloat16" for one with an output of that type. A capture that
        took another path than a GPU would (attention in full, float32) is then an error.
    """

    run: Callable[[Config, str, Mark], None]
    full: Config
    tiny: Config
    model: str
    seed: int
    expects: frozenset[str]
    forbids: frozenset[str]

    def main(self) -> None:
        """Run for real, on the device that the command line names."""
        import torch

        parser = argparse.ArgumentParser(description=self.model)
        parser.add_argument("--tiny", action="store_true", help="a size for a CPU, in seconds")
        parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
        arguments = parser.parse_args()

        begun = time.perf_counter()

        def mark(label: str) -> None:
            with torch.profiler.record_function(label):  # a mark in what a GPU's history holds
                pass
            print(f"{time.perf_counter() - begun:8.3f} s  {label}")

        torch.manual_seed(self.seed)
        self.run(self.tiny if arguments.tiny else self.full, arguments.device, mark)
        mark("done")
