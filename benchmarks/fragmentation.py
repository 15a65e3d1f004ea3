# SPDX-License-Identifier: Apache-2.0
"""How much of PyTorch's fragmentation remains with `planned`, on each bundled training workload.

    python -m benchmarks.fragmentation

Fragmentation in bytes is peak_reserved - max_load. `planned` is run in three ways: with the plan of
the same run, with the plan of another run of the program (`second_runs`), and on its own, where
the time from the second step on, after a trim, is measured. Its processor time is compared with
that of `caching`: in the first pass, with the plan of another run, and in a later pass on its own,
when it has learnt everything.
"""

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.packages import allocators, catalog, workloads
from benchmarks.workshop import second_runs

DEVICE = "sim:200GiB"
PASSES = 4
ROUNDS = 5  # number of passes; the minimum counts


def fragmentation(trace: workloads.Trace, spec: str, first_event: int = 0) -> int:
    """peak_reserved - max_load in bytes, both from an event on."""
    allocator = allocators.make(spec, allocators.make_device(DEVICE))
    result = allocators.replay(trace, allocator, samples=len(trace) if first_event else 1)
    if result.stats.failures:
        raise RuntimeError(f"{trace.name}: {spec} failed on {DEVICE}")
    if not first_event:
        return result.stats.peak_reserved - trace.max_load
    after = result.timeline["event"] >= first_event
    reserved, load = result.timeline["reserved"][after], result.timeline["requested"][after]
    return int(reserved.max()) - int(load.max())


def trimmed(trace: workloads.Trace) -> tuple[workloads.Trace, int]:
    """The trace with a trim before its second step, and the event of the trim."""
    steps = np.flatnonzero((trace.op == workloads.MARK) & (trace.block == trace.step_label))
    trim_event = int(steps[1])
    columns: dict[str, Any] = {
        name: np.insert(column, trim_event, 0) for name, column in trace.columns().items()
    }
    columns["op"][trim_event] = workloads.TRIM
    return replace(trace, **columns), trim_event


def plan(trace: workloads.Trace, path: Path) -> str:
    """The spec of `planned` with the plan of a run, as written by `allocbench plan -o`."""
    blocks = workloads.lifetimes(trace)
    result = allocators.plan(blocks.size, blocks.first, blocks.last, planner="greedy_by_size")
    with path.open("wb") as file:
        workloads.write_plan(blocks, result.offsets, file)
    return f"planned:plan={path}"


def processor_seconds(trace: workloads.Trace, allocator: Any) -> float:
    """Processor time of one pass, which other programs on the machine affect least."""
    before = time.process_time()
    allocators.time_pass(trace, allocator)
    return time.process_time() - before


def times_as_long(name: str) -> dict[str, float]:
    """Processor time relative to `caching`: first pass with a plan, later pass on its own."""
    trace = catalog.load(name)
    with tempfile.TemporaryDirectory() as folder:
        specs = ("caching", plan(second_runs.load(name), Path(folder) / "other.csv"), "planned")
        best = np.full((len(specs), PASSES), np.inf)
        for _ in range(ROUNDS):
            for spec, least in zip(specs, best, strict=True):
                allocator = allocators.make(spec, allocators.make_device(DEVICE))
                passes = [processor_seconds(trace, allocator) for _ in range(PASSES)]
                np.minimum(least, passes, out=least)
    caching, with_plan, alone = best
    return {"first": with_plan[0] / caching[0], "later": alone[-1] / caching[-1]}


def measure(name: str) -> dict[str, int]:
    """Bytes of fragmentation on a training workload, in each way."""
    trace = catalog.load(name)
    cut, trim_event = trimmed(trace)
    with tempfile.TemporaryDirectory() as folder:
        return {
            "max_load": trace.max_load,
            "caching": fragmentation(trace, "caching"),
            "repeated": fragmentation(trace, plan(trace, Path(folder) / "repeated.csv")),
            "other": fragmentation(trace, plan(second_runs.load(name), Path(folder) / "other.csv")),
            "caching_later": fragmentation(cut, "caching", trim_event),
            "alone_later": fragmentation(cut, "planned", trim_event),
        }


def frame() -> pd.DataFrame:
    """One row per training workload with the results of `measure`."""
    return pd.DataFrame({name: measure(name) for name in second_runs.names()}).T


def markdown(table: pd.DataFrame, times: dict[str, dict[str, float]]) -> str:
    """Two tables: bytes, with the reduction relative to `caching`, and times."""
    from allocbench.base import units

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
        for name, row in table.iterrows()
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
