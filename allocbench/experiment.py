# SPDX-License-Identifier: Apache-2.0
"""One run of a trace through an allocator -> one result row; a matrix of runs.

The keys of a row are the columns of `reports.results`, which also defines each metric; what was
not measured, or does not exist for an allocator, is None.
"""

from __future__ import annotations

import datetime
import platform
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench import __version__, allocators
from allocbench.allocators import Allocator, ReplayResult, StrategyInfo, Unavailable
from allocbench.allocators.spec import parse
from allocbench.details import INTERVALS, of_latency, of_replay, with_key
from allocbench.prepared import Prepared
from allocbench.questions.capacity import min_capacity, roomy
from allocbench.reports.details import Details, join
from allocbench.reports.results import SCHEMA
from allocbench.workloads import Features, Trace, features

Row: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]

PASSES = 3
_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}


@dataclass(frozen=True)
class Effort:
    """How much a run measures beside the replay that counts bytes.

    `passes`: cold and steady passes that time the whole trace; with 0 of them no host time is
    measured, that of single calls included. `capacity`: whether to search for min_capacity.
    """

    passes: int = PASSES
    capacity: bool = True

    @property
    def stages(self) -> tuple[str, ...]:
        """What a run goes through, in order."""
        time = ("time", "latency") if self.passes else ()
        return ("replay", *time, *(("min capacity",) if self.capacity else ()))


def check(specs: Sequence[str], device: str) -> None:
    """Make every allocator once; raises SpecError for the first spec that is wrong.

    One that cannot work on the device is wrong only when it is the only one.
    """
    for spec in specs:
        try:
            _fresh(spec, device)
        except Unavailable:
            if len(specs) == 1:
                raise


def run(
    trace: Trace,
    allocator: str,
    device: str,
    effort: Effort = Effort(),
    *,
    workload: str = "",
    described: Features | None = None,
    stage: Callable[[str], None] = lambda name: None,
    placements: Callable[[Arrays], None] | None = None,
    prepared: Prepared | None = None,
) -> tuple[Row, Details]:
    """Measure one allocator on one trace: the row, and what charts need beyond it.

    allocator, device: specs, such as "bfc:allow_growth=false" and "sim:80GiB".
    workload: the row's name of the trace; the trace's own name when empty.
    described: the features of the trace, found here when None.
    stage: called with the name of each of the effort's stages as it begins.
    placements: called with the columns block, segment, offset, size of the replay that counts
        bytes, one element per alloc event; they are not kept.
    prepared: the trace, when the tables of `reports.details` are wanted; they come from a replay
        of their own, and there are none without it.

    Each stage has its own device and allocator. Time: cold passes, each on a new allocator, as many
    as the effort says, and as many steady ones, all on the last of them. Latency: the second pass
    over an allocator, call by call. Host seconds never contain the device's. What is no candidate,
    the floor, has its time taken on a device with room for all it ever asks for: else that would be
    the time of failing. An allocator that cannot work on the device has a row that says why, and
    no timeline. Raises SpecError.
    """
    stage("replay")
    row = _identity(trace, allocator, device, workload) | {"passes": effort.passes} | _origin()
    row |= asdict(described or features(trace))
    try:
        made = _fresh(allocator, device)
    except Unavailable:
        info = allocators.info(parse(allocator).layers[-1].name)
        row["unavailable"] = allocators.unavailable(info, allocators.make_device(device))
        return {name: row.get(name) for name in SCHEMA}, {}
    measured = _measured(trace, made, placements)
    found = _details(prepared, _fresh(allocator, device)) if prepared else {}
    row |= measured
    if effort.passes:
        timed_on = device if row["candidate"] else roomy(device, trace)
        stage("time")
        row |= _passes(trace, allocator, timed_on, effort.passes)
        stage("latency")
        seconds = _timed_calls(trace, _fresh(allocator, timed_on))
        row |= _latency(*seconds)
        if prepared:
            found |= of_latency(prepared, *seconds[:2])
    if effort.capacity:
        stage("min capacity")
        bounds = {name: measured[name] for name in ("max_load", "peak_reserved")}
        row["min_capacity"] = min_capacity(trace, allocator, device, **bounds)
    return {name: row.get(name) for name in SCHEMA}, with_key(found, row)


def without_result(trace: Trace, allocator: str, device: str, why: str, *, workload: str) -> Row:
    """The row of a run that has no result; `why` goes on after the allocator's name and "it"."""
    row = _identity(trace, allocator, device, workload) | _origin() | {"unavailable": why}
    return {name: row.get(name) for name in SCHEMA}


def run_matrix(
    workloads: Mapping[str, Trace],
    specs: Sequence[str],
    device: str,
    effort: Effort = Effort(),
    *,
    detailed: bool = False,
    stage: Callable[[str, str, str], None] = lambda workload, allocator, name: None,
    done: Callable[[Row], None] = lambda row: None,
) -> tuple[list[Row], Details]:
    """Run every workload through every allocator: the rows, and the tables of `reports.details`.

    detailed: whether those tables are wanted; else they are empty.
    stage: called with workload, allocator and stage as each stage begins.
    done: called with each row as it is ready.

    Raises SpecError for a wrong spec before anything is run.
    """
    check(specs, device)
    rows: list[Row] = []
    parts: list[Details] = []
    for workload, trace in workloads.items():
        described = features(trace)
        prepared = Prepared.of(workload, trace, len(specs)) if detailed else None
        if prepared:
            parts.append(prepared.details())
        for spec in specs:

            def begin(name: str, workload: str = workload, spec: str = spec) -> None:
                stage(workload, spec, name)

            row, found = run(
                trace,
                spec,
                device,
                effort,
                workload=workload,
                described=described,
                stage=begin,
                prepared=prepared,
            )
            rows.append(row)
            parts.append(found)
            done(row)
    return rows, join(parts)


def _fresh(allocator: str, device: str) -> Allocator:
    return allocators.make(allocator, allocators.make_device(device))


def _details(prepared: Prepared, allocator: Allocator) -> dict[str, pd.DataFrame]:
    result = allocators.replay(prepared.trace, allocator, samples=INTERVALS, detail=True)
    keeps = allocator.info.keeps_free_blocks
    return of_replay(prepared, result, allocator.device.capacity, keeps)


def _identity(trace: Trace, allocator: str, device: str, workload: str) -> Row:
    """What is known before anything is run; the device is not opened."""
    return {
        "workload": workload or trace.name,
        "allocator": allocator,
        "device": device,
        "device_kind": "cuda" if device.partition(":")[0] == "cuda" else "simulated",
        "events": len(trace),
        "blocks": trace.allocs,
        "candidate": allocators.info(parse(allocator).layers[-1].name).candidate,
    }


def _measured(
    trace: Trace, allocator: Allocator, placements: Callable[[Arrays], None] | None
) -> Row:
    result = allocators.replay(trace, allocator, placements=placements or False)
    row = {
        "candidate": allocator.info.candidate,
        "device_calls": result.device.calls,
        "device_seconds": result.device.seconds,
        "device_seconds_source": allocator.device.cost_source,
        "failures": result.stats.failures,
        "retries": result.stats.retries,
    }
    row |= _memory(result) | _fragmentation(result, allocator.info)
    return row | {name: count for name, count in result.counters.items() if name in SCHEMA}


def _memory(result: ReplayResult) -> Row:
    stats, peak = result.stats, result.peak
    return {
        "max_load": result.max_load,
        "peak_requested": stats.peak_requested,
        "peak_allocated": stats.peak_allocated,
        "peak_reserved": stats.peak_reserved,
        "stranded": peak.reserved - peak.allocated,
        # Where requests failed, what was reserved did not carry the load that bounds it.
        "overhead": None if stats.failures else _ratio(stats.peak_reserved, result.max_load),
    }


def _fragmentation(result: ReplayResult, info: StrategyInfo) -> Row:
    stats, peak = result.stats, result.peak
    free = peak.reserved - peak.allocated
    external = (free - peak.largest_free) / free if free else 0.0
    keeps = info.keeps_free_blocks
    return {
        "internal_fragmentation": _ratio(peak.allocated - peak.requested, peak.allocated),
        "internal_fragmentation_mean": result.internal_fragmentation_mean,
        "external_fragmentation": external if keeps else None,
        "external_fragmentation_mean": result.external_fragmentation_mean if keeps else None,
        "utilization": _ratio(stats.peak_allocated, stats.peak_reserved),
        "utilization_at_peak": _ratio(peak.allocated, peak.reserved),
    }


def _passes(trace: Trace, allocator: str, device: str, passes: int) -> Row:
    cold = []
    for _ in range(passes):
        made = _fresh(allocator, device)
        cold.append(allocators.time_pass(trace, made))
    steady = [allocators.time_pass(trace, made) for _ in range(passes)]
    return {
        "seconds_per_event_cold": min(cold),
        "seconds_per_event_cold_median": statistics.median(cold),
        "seconds_per_event_steady": min(steady),
        "seconds_per_event_steady_median": statistics.median(steady),
    }


def _timed_calls(
    trace: Trace, allocator: Allocator
) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Host seconds of each alloc and each free of the second pass; what the timer costs."""
    allocators.time_pass(trace, allocator)
    return allocators.time_each(trace, allocator)


def _latency(alloc: NDArray[np.float32], free: NDArray[np.float32], timer: float) -> Row:
    return _summary("alloc", alloc) | _summary("free", free) | {"timer_seconds": timer}


def _summary(call: str, seconds: NDArray[np.float32]) -> Row:
    row: Row = {f"{call}_count": len(seconds)}
    if len(seconds):
        row[f"{call}_mean_seconds"] = float(seconds.mean(dtype=np.float64))
        row[f"{call}_max_seconds"] = float(seconds.max())
        found = np.percentile(seconds, list(_PERCENTILES.values()))
        for name, value in zip(_PERCENTILES, found, strict=True):
            row[f"{call}_{name}_seconds"] = float(value)
    return row


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _origin() -> Row:
    return {
        "allocbench_version": __version__,
        "python": platform.python_version(),
        "cpu": _cpu(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@cache
def _cpu() -> str:
    """The processor's name, as Linux tells it, or its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()
