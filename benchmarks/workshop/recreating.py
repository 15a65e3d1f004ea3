# SPDX-License-Identifier: Apache-2.0
"""Recreate the bundled traces: replace the files, or compare their bytes.

    python -m benchmarks.workshop.recreating [NAME...] [--check] [--device DEVICE] [--python PATH]

The bundled files were captured on a null H100 without workspaces of cuDNN, with a CUDA build of
PyTorch: `--python` names a Python that has it. Other devices give other traces: `--device fake`
those under fake tensors, with the CPU build of PyTorch that is installed with allocbench.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from allocbench.errors import USER_ERRORS
from allocbench.programs.capturing import NULL, Where, where
from allocbench.workloads import Trace, TraceError, again, catalog

Recreate = Callable[[Sequence[str], Path], None]
"""Captures workloads by name and writes them to a folder as NAME.parquet."""
DEVICE = f"{NULL},convolution_workspace=0,graph_workspace=0"
"""The bundled traces are older than the formulas for workspaces of cuDNN."""
TORCH = "2.13.0"
"""The PyTorch that the bundled traces are made with."""
FILES = (
    (catalog.recreate, catalog.captured, catalog.DATA),
    (again.recreate, again.names, again.DATA),
)


def changed(names: Sequence[str], recreate: Recreate, bundled: Path) -> list[str]:
    """The names of the workloads whose new capture differs from the files in `bundled`."""
    with tempfile.TemporaryDirectory() as folder:
        recreate(names, Path(folder))
        files = [f"{name}.parquet" for name in names]
        pairs = [(bundled / file, Path(folder) / file) for file in files]
        return [old.stem for old, new in pairs if old.read_bytes() != new.read_bytes()]


def capturing(there: Where) -> catalog.Capture:
    """How a module is captured; raises TraceError if its PyTorch is not that of the files."""

    def capture(module: str, name: str, date: str) -> Trace:
        trace, _ = there.capture(module, name, date)
        if trace.provenance.torch != TORCH:
            raise TraceError(
                f"{there.python}: has PyTorch {trace.provenance.torch}; the bundled traces are "
                f"made with {TORCH}"
            )
        return trace

    return capture


def main() -> int:
    """The command line. Returns the exit code: 0 equal or replaced, 1 different, 2 not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workshop.recreating", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a workload; default: all")
    parser.add_argument(
        "--check", action="store_true", help="compare the bytes instead of replacing the files"
    )
    parser.add_argument("--device", default=DEVICE, help=f"{DEVICE} (default), cuda, fake")
    parser.add_argument("--python", help="an interpreter that has a CUDA build of PyTorch")
    arguments = parser.parse_args()
    different = list[str]()
    try:
        for name in arguments.names:
            catalog.bundled(name)
        capture = capturing(where(arguments.device, arguments.python))
        for recreate_all, names, folder in FILES:
            recreate = partial(recreate_all, capture_module=capture)
            chosen = [name for name in names() if not arguments.names or name in arguments.names]
            if arguments.check:
                different += changed(chosen, recreate, folder)
            else:
                recreate(chosen, folder)
        if not arguments.check:
            catalog.write_sizes()
    except USER_ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in different:
        print(f"error: {name}: the new capture differs from the bundled file", file=sys.stderr)
    if not different:
        print(catalog.markdown())
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
