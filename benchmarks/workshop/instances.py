# SPDX-License-Identifier: Apache-2.0
"""Planners of ours and original ones on the published instances of MiniMalloc and idealloc.

    PYTHONPATH=. python -m benchmarks.workshop.instances FOLDER

plans the files of INSTANCES that are anywhere in a folder and writes
`benchmarks/results/instances.json`, from which docs/league.md has its table. A file is one of them
if its SHA-256 is the listed one.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from allocbench import allocators
from allocbench.allocators import SpecError
from allocbench.questions.league import height
from allocbench.workloads.block_lifetimes import Lifetimes, read_lifetimes
from benchmarks.workshop.originals import planners
from benchmarks.workshop.originals.environments import ROOT, NotHereError, sha256
from benchmarks.workshop.originals.planners import PLANNERS

SECONDS = 60.0  # after which an original is stopped
CAPACITY = 1 << 20  # bytes that are enough for the instances whose names end with it
RESULTS = ROOT / "benchmarks" / "results" / "instances.json"
INSTANCES: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
"""`from`, where to get each file, and its `sha256`."""
COLLECTIONS = tuple(dict.fromkeys(one["from"] for one in INSTANCES.values()))


def main() -> None:
    """Plan every instance that is there; write heights divided by the largest load."""
    found = dict(_found(Path(sys.argv[1])))
    rows = []
    for planner in allocators.planners():
        heights = {name: height(blocks, planner, 1) for name, blocks in found.items()}
        rows.append(_row(f"`{planner}`", heights, found))
    for original in PLANNERS:
        try:
            line = original.line()
        except NotHereError:
            continue
        given: dict[str, int | None] = {}
        for name, blocks in found.items():
            try:
                capacity = CAPACITY if name.endswith(f".{CAPACITY}.csv") else None
                places = planners.offsets(line, blocks, capacity=capacity, seconds=SECONDS)
                given[name] = planners.height(original.name, blocks, places)
            except (NotHereError, SpecError) as error:
                print(f"{original.name}: {name}: {error}", file=sys.stderr)
                given[name] = None
        rows.append(_row(original.name, given, found))
    RESULTS.write_text(json.dumps({"planners": rows}, indent=1) + "\n")


def table() -> Iterator[tuple[str, ...]]:
    """A row for each planner: mean of the ratios of both collections, and where it is optimal."""
    read = json.loads(RESULTS.read_text(encoding="utf-8"))
    for row in sorted(read["planners"], key=lambda row: _mean(row, COLLECTIONS[0]) or math.inf):
        means = (_mean(row, source) for source in COLLECTIONS)
        optimal = sum(ratio == 1.0 for ratio in row["ratios"].values())
        failed = sum(ratio is None for ratio in row["ratios"].values())
        yield (
            row["planner"],
            *("" if mean is None else f"{mean:.4f}" for mean in means),
            f"{optimal} of {len(row['ratios'])}",
            str(failed or ""),
        )


def _found(folder: Path) -> Iterator[tuple[str, Lifetimes]]:
    there = {path.name: path for path in sorted(folder.rglob("*.csv")) if path.name in INSTANCES}
    for name, listed in INSTANCES.items():
        if name not in there:
            sys.exit(f"error: {name} is not in {folder}; it is from {listed['from']}")
        if sha256(there[name]) != listed["sha256"]:
            sys.exit(f"error: {there[name]} is not the listed file: its SHA-256 differs")
        yield name, read_lifetimes(there[name])


def _row(
    planner: str, heights: dict[str, int] | dict[str, int | None], found: dict[str, Lifetimes]
) -> dict[str, object]:
    ratios = {}
    for name, reached in heights.items():
        blocks = found[name]
        load = allocators.plan(blocks.size, blocks.first, blocks.last, planner="no_reuse").max_load
        ratios[name] = None if reached is None else round(reached / load, 6)
    return {"planner": planner, "ratios": ratios}


def _mean(row: dict[str, dict[str, float | None]], source: str) -> float | None:
    ratios = [row["ratios"][name] for name, one in INSTANCES.items() if one["from"] == source]
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if len(known) == len(ratios) else None


if __name__ == "__main__":
    main()
