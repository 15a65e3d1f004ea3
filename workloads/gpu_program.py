# SPDX-License-Identifier: Apache-2.0
"""Run a module's `PROGRAM` in full on a GPU, for a recording that is the same each time.

    python -m allocbench.workloads.gpu_program MODULE ABOUT

ABOUT is a file to which the model, the seed and the configuration are written as JSON. Only the
standard library and torch are used, because the Python that runs this may lack the dependencies of
allocbench. Python's garbage collector runs only at marks.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

_WRONG = 2


def run(program: Any) -> None:
    """Run a Program in full on "cuda"; its marks become annotations in the allocator's history."""
    import torch

    def mark(label: str) -> None:
        gc.collect()
        with torch.autograd.profiler.record_function(label):
            pass

    # The recording begins here, before the first mark.
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.manual_seed(program.seed)
    gc.collect()
    gc.freeze()
    gc.disable()
    program.run(program.full, "cuda", mark)
    gc.collect()


def main() -> int:
    """Run the program; an error is one line on standard error, and the exit code 2."""
    module, about = sys.argv[1:]
    try:
        program = importlib.import_module(module).PROGRAM
        about_program = {
            "model": program.model,
            "seed": program.seed,
            "config": asdict(program.full),
        }
        Path(about).write_text(json.dumps(about_program), encoding="utf-8")
        run(program)
    except Exception as error:
        lines = str(error).strip().splitlines()
        print(f"error: {type(error).__name__}: {lines[0] if lines else ''}", file=sys.stderr)
        return _WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
