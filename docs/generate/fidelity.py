# SPDX-License-Identifier: Apache-2.0
"""Fidelity of traces: `caching` against PyTorch's own allocator.

    python -m docs.generate.fidelity --python PATH [NAME...]

Writes benchmarks/results/fidelity.json, a row for each bundled program. PATH is a Python with a
CUDA build of PyTorch.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from allocbench.verification.agreement import Agreement
from allocbench.verification.verify import verify
from allocbench.workloads import catalog
from benchmarks.workshop.bundled_traces import files, trace_of

FILE = Path(__file__).parent.parent.parent / "benchmarks" / "results" / "fidelity.json"


def row(name: str, found: Agreement) -> dict[str, Any]:
    """The row of one program."""
    return {
        "program": name,
        "allocs": found.allocs,
        "placed_equal": found.placed_equal,
        "segment_calls": found.segment_calls,
        "segment_calls_equal": found.segment_calls_equal,
        "peak_reserved": found.peak_reserved_recorded,
    }


def measured(name: str, python: str) -> dict[str, Any]:
    """The row of a program that runs on a null H100."""
    (file, *_) = files([name])
    with tempfile.TemporaryDirectory() as folder:
        trace = trace_of(file, python, "null:h100", keep=Path(folder))
        (snapshot,) = Path(folder).glob("*.pickle")
        version = ".".join(trace.provenance.torch.split(".")[:2])
        verdict = verify(snapshot, f"caching:version={version}")
    if verdict.agreement is None:
        raise SystemExit(f"{name}: {verdict.unknown}")
    return row(name, verdict.agreement)


def main() -> None:
    """Measure the programs, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate.fidelity", description=__doc__)
    parser.add_argument("names", nargs="*", default=catalog.captured(), metavar="NAME")
    parser.add_argument("--python", required=True, help="with a CUDA build of PyTorch")
    arguments = parser.parse_args()
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    rows = {one["program"]: one for one in stored["rows"]}
    rows |= {name: measured(name, arguments.python) for name in arguments.names}
    stored["rows"] = list(rows.values())
    FILE.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
