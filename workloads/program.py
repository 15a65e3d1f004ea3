# SPDX-License-Identifier: Apache-2.0
"""What a program must declare to be captured, and how it runs on its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Config = TypeVar("Config")

Mark = Callable[[str], None]
"""Called with a label at the start of a step ("step") or a phase ("forward", ...)."""


@dataclass(frozen=True)
class Program(Generic[Config]):
    """A PyTorch program whose allocations are captured as a trace.

    run: builds, runs and drops the model: `run(config, device, mark)`.
    full: the captured configuration; tiny: one that a CPU can run in seconds. Both are instances of
        a dataclass.
    model: description of the model, for the provenance.
    seed: seed of every random choice in `run` that affects a size.
    expects, forbids: operators that must, or must not, run in a capture of `full`, such as
        "aten::mm", or "aten::mm:bfloat16" for one with an output of that type. They detect a
        capture that takes another path than a GPU would (unfused attention, float32).
    """

    run: Callable[[Config, str, Mark], None]
    full: Config
    tiny: Config
    model: str
    seed: int
    expects: frozenset[str]
    forbids: frozenset[str]

    def main(self) -> None:
        """Run the program on the device given on the command line."""
        import torch

        parser = argparse.ArgumentParser(description=self.model)
        parser.add_argument(
            "--tiny", action="store_true", help="a small configuration that a CPU runs in seconds"
        )
        parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
        arguments = parser.parse_args()

        begun = time.perf_counter()

        def mark(label: str) -> None:
            with torch.profiler.record_function(label):  # becomes a mark in a GPU's memory history
                pass
            print(f"{time.perf_counter() - begun:8.3f} s  {label}")

        torch.manual_seed(self.seed)
        self.run(self.tiny if arguments.tiny else self.full, arguments.device, mark)
        mark("done")
