# SPDX-License-Identifier: Apache-2.0
"""Fidelity of traces: fake tensors against the null GPU, `caching` against PyTorch.

    python -m docs.generate.fidelity --python PATH [NAME...]

Prints two Markdown tables for docs/without-a-gpu.md, a row for each bundled program. PATH is a
Python with a CUDA build of PyTorch; fake tensors use the CPU build that is installed with
allocbench.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from allocbench.programs.capturing import FAKE, NULL, Where, where
from allocbench.verification.agreement import Agreement
from allocbench.verification.verify import verify
from allocbench.workloads import ALLOC, Trace, catalog
from allocbench.workloads.alignment import agreement

CAPTURES = (
    "| program | allocs, null GPU | allocs, fake tensors | missed | bytes missed | only in fake "
    "tensors | events in common | max load, null GPU | max load, fake tensors | error |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)
PLACES = (
    "| program | allocs | same address | segment calls | same calls | peak reserved |\n"
    "|---|--:|--:|--:|--:|--:|"
)


def allocs(trace: Trace) -> Counter[int]:
    """How often each size is allocated."""
    return Counter(trace.size[trace.op == ALLOC].tolist())


def captures(name: str, null: Trace, fake: Trace) -> str:
    """The row of one program in the first table."""
    missed, extra = allocs(null) - allocs(fake), allocs(fake) - allocs(null)
    both = agreement(fake, null)
    cells = (
        f"{null.allocs:,}",
        f"{fake.allocs:,}",
        f"{missed.total():,}",
        f"{sum(size * count for size, count in missed.items()):,}",
        f"{extra.total():,}",
        f"{both.recall:.1%}",
        f"{null.max_load:,}",
        f"{fake.max_load:,}",
        f"{both.peak_error:+.2%}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def places(name: str, found: Agreement) -> str:
    """The row of one program in the second table."""
    cells = (
        f"{found.allocs:,}",
        f"{found.placed_equal:,}",
        f"{found.segment_calls:,}",
        f"{found.segment_calls_equal:,}",
        f"{found.peak_reserved_recorded:,}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def measured(name: str, there: Where) -> tuple[str, str]:
    """The two rows of one program."""
    workload = catalog.bundled(name)
    fake, _ = Where(FAKE).capture(workload.module)
    with tempfile.TemporaryDirectory() as folder:
        null, _ = there.capture(workload.module, keep=Path(folder))
        (snapshot,) = Path(folder).glob("*.pickle")
        verdict = verify(
            snapshot, f"caching:version={'.'.join(null.provenance.torch.split('.')[:2])}"
        )
    if verdict.agreement is None:
        raise SystemExit(f"{name}: {verdict.unknown}")
    return captures(name, null, fake), places(name, verdict.agreement)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate.fidelity", description=__doc__)
    parser.add_argument("names", nargs="*", default=catalog.captured(), metavar="NAME")
    parser.add_argument("--python", required=True, help="with a CUDA build of PyTorch")
    arguments = parser.parse_args()
    there = where(NULL, arguments.python)
    print(CAPTURES)
    second = []
    for name in arguments.names:
        row, place = measured(name, there)
        print(row, flush=True)
        second.append(place)
    print("\n".join(["", PLACES, *second]))


if __name__ == "__main__":
    main()
