# SPDX-License-Identifier: Apache-2.0
"""The form of the bundled PyTorch programs, and how they run on their own.

    PYTHONPATH=. allocbench record --device null:h100 -o trace.parquet -- \\
        python -m benchmarks.workshop.models.gpt2 --device cuda

A program needs only the standard library and torch, because the Python that runs it may lack the
dependencies of allocbench.
"""

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Config = TypeVar("Config")

Mark = Callable[[str], None]
"""Called with a label at the start of a step ("step") or a phase ("forward", ...)."""


@dataclass(frozen=True)
class ModelProgram(Generic[Config]):
    """A PyTorch program whose recorded allocations are a workload.

    run: builds, runs and drops the model: `run(config, device, mark)`.
    full: the recorded configuration; tiny: one that a CPU can run in seconds. Both are instances of
        a dataclass.
    model: description of the model, for the provenance.
    seed: seed of every random choice in `run` that affects a size.
    """

    run: Callable[[Config, str, Mark], None]
    full: Config
    tiny: Config
    model: str
    seed: int

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run the program on the device that the command line names.

        Each run makes the same allocations: Python collects garbage only at marks.
        """
        import torch

        parser = argparse.ArgumentParser(description=self.model)
        parser.add_argument(
            "--tiny", action="store_true", help="a small configuration that a CPU runs in seconds"
        )
        parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
        options = parser.parse_args(arguments)
        begun = time.perf_counter()

        def mark(label: str) -> None:
            gc.collect()
            with torch.profiler.record_function(label):  # becomes a mark in a GPU's memory history
                pass
            print(f"{time.perf_counter() - begun:8.3f} s  {label}")

        if options.device == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]  # a recording begins here
        torch.manual_seed(self.seed)
        gc.collect()
        gc.freeze()
        gc.disable()
        self.run(self.tiny if options.tiny else self.full, options.device, mark)
        gc.collect()
        print(f"{time.perf_counter() - begun:8.3f} s  done")
