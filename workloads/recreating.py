# SPDX-License-Identifier: Apache-2.0
"""Recreate bundled traces: replace the files, or compare their bytes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from allocbench.workloads.fake_cuda import CaptureError
from allocbench.workloads.trace import TraceError

Recreate = Callable[[Sequence[str], Path], None]
"""Captures workloads by name and writes them to a folder as NAME.parquet."""


def changed(names: Sequence[str], recreate: Recreate, bundled: Path) -> list[str]:
    """The names of the workloads whose new capture differs from the files in `bundled`."""
    with tempfile.TemporaryDirectory() as folder:
        recreate(names, Path(folder))
        files = [f"{name}.parquet" for name in names]
        pairs = [(bundled / file, Path(folder) / file) for file in files]
        return [old.stem for old, new in pairs if old.read_bytes() != new.read_bytes()]


def main(module: str, names: Sequence[str], recreate: Recreate, bundled: Path) -> int:
    """The command line of a module that bundles traces. Returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare the bytes instead of replacing the files"
    )
    try:
        if not parser.parse_args().check:
            recreate(names, bundled)
            return 0
        others = changed(names, recreate, bundled)
    except (CaptureError, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in others:
        print(f"error: {name}: the new capture differs from the bundled file", file=sys.stderr)
    return 1 if others else 0
