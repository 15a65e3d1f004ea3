# SPDX-License-Identifier: Apache-2.0
"""How much of PyTorch's fragmentation `planned` leaves, on every bundled training workload.

    python -m benchmarks.fragmentation

Fragmentation in bytes is peak_reserved - max_load. `planned` is run in three ways: with the plan of
the very run, with the plan of another run of the program (`workloads.again`), and on its own, where
what counts is the time from the second step on, after a trim. Its host time is given beside that of
`caching`: of the first pass of both, with the plan of another run, and of a later pass alone, when
nothing is new to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.packages import allocators, catalog, units, workloads

DEVICE = "sim:200GiB"
PASSES = 4
ROUNDS = 5  # of passes; the least times count


def fragmentation(trace: workloads.Trace, spec: str, first_event: int = 0) -> int:
    """peak_reserved - max_load in bytes, both from an event on."""
    allocator = allocators.make(spec, allocators.make_device(DEVICE))
    found = allocators.replay(trace, allocator, samples=len(trace))
    if found.stats.failures:
        raise RuntimeError(f"{trace.name}: {spec} failed on {DEVICE}")
    after = found.timeline["event"] >= first_event
    reserved, load = found.timeline["reserved"][after], found.timeline["requested"][after]
    return int(reserved.max()) - int(load.max())


def trimmed(trace: workloads.Trace) -> tuple[workloads.Trace, int]:
    """The trace with a trim before its second step, and the event of the trim."""
    steps = np.flatnonzero((trace.op == workloads.MARK) & (trace.block == trace.step_label))
    at = int(steps[1])
    columns = {name: np.insert(column, at, 0) for name, column in trace.columns().items()}
    columns["op"][at] = workloads.TRIM
    return workloads.Trace(**columns, labels=trace.labels, provenance=trace.provenance), at


def plan(trace: workloads.Trace, path: Path) -> str:
    """The spec of `planned` with the plan of a run, as `allocbench plan -o` writes it."""
    blocks = workloads.lifetimes(trace)
    made = allocators.plan(blocks.size, blocks.first, blocks.last, planner="greedy_by_size")
    with path.open("wb") as file:
        workloads.write_plan(blocks, made.offsets, file)
    return f"planned:plan={path}"


def times_as_long(name: str) -> dict[str, float]:
    """Seconds per event over those of `caching`: its first pass with a plan, a later one alone."""
    from allocbench.workloads import again

    trace = catalog.load(name)
    with tempfile.TemporaryDirectory() as folder:
        specs = ("caching", plan(again.load(name), Path(folder) / "other.csv"), "planned")
        best = np.full((len(specs), PASSES), np.inf)
        for _ in range(ROUNDS):
            for spec, least in zip(specs, best, strict=True):
                allocator = allocators.make(spec, allocators.make_device(DEVICE))
                passes = [allocators.time_pass(trace, allocator) for _ in range(PASSES)]
                np.minimum(least, passes, out=least)
    caching, with_plan, alone = best
    return {"first": with_plan[0] / caching[0], "later": alone[-1] / caching[-1]}


def measure(name: str) -> dict[str, int]:
    """Bytes of fragmentation on a training workload, in each way."""
    from allocbench.workloads import again

    trace = catalog.load(name)
    cut, at = trimmed(trace)
    with tempfile.TemporaryDirectory() as folder:
        return {
            "max_load": trace.max_load,
            "caching": fragmentation(trace, "caching"),
            "repeated": fragmentation(trace, plan(trace, Path(folder) / "repeated.csv")),
            "other": fragmentation(trace, plan(again.load(name), Path(folder) / "other.csv")),
            "caching_later": fragmentation(cut, "caching", at),
            "alone_later": fragmentation(cut, "planned", at),
        }


def frame() -> pd.DataFrame:
    """One row for each training workload, with what `measure` finds."""
    from allocbench.workloads import again

    return pd.DataFrame({name: measure(name) for name in again.names()}).T


def markdown(found: pd.DataFrame, times: dict[str, dict[str, float]]) -> str:
    """Two tables: bytes, with how much less they are than `caching`'s, and times."""

    def less(row: pd.Series, way: str, than: str) -> str:
        return f"{units.size(row[way])} (-{1 - row[way] / row[than]:.1%})"

    sizes = [
        (
            str(name),
            units.size(row.max_load),
            units.size(row.caching),
            less(row, "repeated", "caching"),
            less(row, "other", "caching"),
            units.size(row.caching_later),
            less(row, "alone_later", "caching_later"),
        )
        for name, row in found.iterrows()
    ]
    ratios = [(name, *(f"{ratio:.2f}x" for ratio in of.values())) for name, of in times.items()]
    ways = ("max load", "`caching`", "plan of the same run", "plan of another run")
    later = ("`caching`, from step 2", "alone, from step 2")
    return "\n\n".join(
        (
            _table((*ways, *later), sizes),
            _table(("first pass, plan of another run", "later pass, alone"), ratios),
        )
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| workload | {' | '.join(headings)} |", f"|---|{'--:|' * len(headings)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    measured = frame()
    print(markdown(measured, {name: times_as_long(name) for name in measured.index}))
