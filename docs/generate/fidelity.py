# SPDX-License-Identifier: Apache-2.0
"""Fidelity of traces: `caching` against PyTorch's own allocator.

    python -m docs.generate.fidelity --python PATH [NAME...]

Prints a Markdown table for docs/without-a-gpu.md, a row for each bundled program. PATH is a Python
with a CUDA build of PyTorch.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from allocbench.verification.agreement import Agreement
from allocbench.verification.verify import verify
from allocbench.workloads import catalog
from benchmarks.workshop.bundled_traces import files, trace_of

PLACES = (
    "| program | allocs | same address | segment calls | same calls | peak reserved |\n"
    "|---|--:|--:|--:|--:|--:|"
)


def places(name: str, found: Agreement) -> str:
    """The row of one program."""
    cells = (
        f"{found.allocs:,}",
        f"{found.placed_equal:,}",
        f"{found.segment_calls:,}",
        f"{found.segment_calls_equal:,}",
        f"{found.peak_reserved_recorded:,}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def measured(name: str, python: str) -> str:
    """The row of a program that runs on a null H100."""
    (file, *_) = files([name])
    with tempfile.TemporaryDirectory() as folder:
        trace = trace_of(file, python, "null:h100", keep=Path(folder))
        (snapshot,) = Path(folder).glob("*.pickle")
        version = ".".join(trace.provenance.torch.split(".")[:2])
        verdict = verify(snapshot, f"caching:version={version}")
    if verdict.agreement is None:
        raise SystemExit(f"{name}: {verdict.unknown}")
    return places(name, verdict.agreement)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate.fidelity", description=__doc__)
    parser.add_argument("names", nargs="*", default=catalog.captured(), metavar="NAME")
    parser.add_argument("--python", required=True, help="with a CUDA build of PyTorch")
    arguments = parser.parse_args()
    print(PLACES)
    for name in arguments.names:
        print(measured(name, arguments.python), flush=True)


if __name__ == "__main__":
    main()
