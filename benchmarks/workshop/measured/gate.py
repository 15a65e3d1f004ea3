# SPDX-License-Identifier: Apache-2.0
"""Import what a program needs, wait for a line on standard input, and run the program.

    python gate.py PROGRAM OPTION...

Imports take longer than most runs and need no GPU memory, so they are done while others use it.
This file runs in the environment of the programs, without allocbench.
"""

import contextlib
import importlib
import runpy
import sys
from pathlib import Path

READY = "ready"
_MODULES = {
    "vision": ("torch", "torchvision"),
    "language": ("torch", "transformers"),
    "recurrent": ("torch",),
    "diffusion": ("torch", "diffusers"),
}


def main() -> None:
    """Run the program of the command line."""
    path = Path(sys.argv[1])
    with contextlib.suppress(ImportError):  # the program raises it again
        for name in _MODULES.get(path.stem, ()):
            importlib.import_module(name)
    print(READY, flush=True)
    if not sys.stdin.readline():
        sys.exit("the driver ended")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(path.parent)
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
