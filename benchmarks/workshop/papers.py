# SPDX-License-Identifier: Apache-2.0
"""What papers on GPU memory allocators report, beside our training programs.

    PYTHONPATH=. python -m benchmarks.workshop.papers

writes `benchmarks/results/papers.json`, from which docs/league.md has its table. Fragmentation is
1 - peak allocated / peak reserved bytes, as both papers define it.
"""

import json
import statistics
from collections.abc import Iterator

from allocbench import allocators
from allocbench.base.units import size as in_units
from allocbench.questions.league import DEVICE
from allocbench.replays.runner import fresh
from allocbench.workloads import catalog
from benchmarks.workshop.originals.environments import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "papers.json"
PROGRAMS = (
    "diffusion-train",
    "dlrm-train",
    "gpt2-train",
    "llama3-8b-lora",
    "moe-train",
    "resnet50-train",
)
CACHING = "caching"
COMPARED = ("expandable", "planned", "caching:expandable_segments=true")
"""Strategies of GMLake's and of STAlloc's kind, and what PyTorch offers today."""


def main() -> None:
    """Replay the training programs."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for name in PROGRAMS:
        trace = catalog.load(name)
        for spec in (CACHING, *COMPARED):
            stats = allocators.replay(trace, fresh(spec, DEVICE)).stats
            found.setdefault(spec, {})[name] = {
                "allocated": stats.peak_allocated,
                "reserved": stats.peak_reserved,
            }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def rows() -> Iterator[tuple[str, ...]]:
    """Mean and most of what each strategy saves, against `caching`."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    before = found[CACHING]
    for spec in COMPARED:
        saved = [before[name]["reserved"] - found[spec][name]["reserved"] for name in PROGRAMS]
        points = [_waste(before[name]) - _waste(found[spec][name]) for name in PROGRAMS]
        relative = [1 - _waste(found[spec][name]) / _waste(before[name]) for name in PROGRAMS]
        yield (
            f"`{spec}`",
            f"{in_units(statistics.mean(saved))} ({in_units(max(saved))})",
            f"{statistics.mean(points):.1%} ({max(points):.1%})",
            f"{statistics.mean(relative):.1%} ({max(relative):.1%})",
        )


def _waste(row: dict[str, int]) -> float:
    return 1 - row["allocated"] / row["reserved"]


if __name__ == "__main__":
    main()
