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
from numpy.typing import NDArray

import allocators
from allocators import Allocator, ReplayResult, StrategyInfo
from allocbench import __version__
from allocbench.capacity import min_capacity, roomy
from reports.results import SCHEMA
from workloads import Features, Trace, features

Row: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]

PASSES = 3
_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}
_TIMELINE = ("event", "requested", "allocated", "reserved")


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
    """Make every allocator once; raises SpecError for the first spec that is wrong."""
    for spec in specs:
        _fresh(spec, device)


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
) -> tuple[Row, Arrays]:
    """Measure one allocator on one trace: the row, and its bytes over time.

    allocator, device: specs, such as "bfc:allow_growth=false" and "sim:80GiB".
    workload: the row's name of the trace; the trace's own name when empty.
    described: the features of the trace, found here when None.
    stage: called with the name of each of the effort's stages as it begins.
    placements: called with the columns block, segment, offset, size of the replay that counts
        bytes, one element per alloc event; they are not kept.

    The timeline has the columns event, requested, allocated, reserved (bytes), about 1000 points.

    Each stage has its own device and allocator. Time: a cold pass on a new allocator and a steady
    pass on the same one again, as often as the effort says. Latency: the second pass over an
    allocator, call by call. Host seconds never contain the device's. What is no candidate, the
    floor, has its time taken on a device with room for all it ever asks for: else that would be
    the time of failing. Raises SpecError.
    """
    stage("replay")
    measured, timeline = _measured(trace, _fresh(allocator, device), placements)
    row = measured | _origin() | {"passes": effort.passes}
    row |= {"workload": workload or trace.name, "allocator": allocator, "device": device}
    row |= {"events": len(trace), "blocks": trace.allocs}
    row |= asdict(described or features(trace))
    if effort.passes:
        timed_on = device if row["candidate"] else roomy(device, trace)
        stage("time")
        row |= _passes(trace, allocator, timed_on, effort.passes)
        stage("latency")
        row |= _latency(trace, _fresh(allocator, timed_on))
    if effort.capacity:
        stage("min capacity")
        bounds = {name: measured[name] for name in ("max_load", "peak_reserved")}
        row["min_capacity"] = min_capacity(trace, allocator, device, **bounds)
    return {name: row.get(name) for name in SCHEMA}, timeline


def run_matrix(
    workloads: Mapping[str, Trace],
    specs: Sequence[str],
    device: str,
    effort: Effort = Effort(),
    *,
    stage: Callable[[str, str, str], None] = lambda workload, allocator, name: None,
) -> tuple[list[Row], dict[tuple[str, str], Arrays]]:
    """Run every workload through every allocator: the rows, and the timelines by both names.

    stage: called with workload, allocator and stage as each stage begins. Raises SpecError for
    a wrong spec before anything is run.
    """
    check(specs, device)
    rows: list[Row] = []
    timelines = {}
    for workload, trace in workloads.items():
        described = features(trace)
        for spec in specs:

            def begin(name: str, workload: str = workload, spec: str = spec) -> None:
                stage(workload, spec, name)

            row, timeline = run(
                trace, spec, device, effort, workload=workload, described=described, stage=begin
            )
            rows.append(row)
            timelines[workload, spec] = timeline
    return rows, timelines


def _fresh(allocator: str, device: str) -> Allocator:
    return allocators.make(allocator, allocators.make_device(device))


def _measured(
    trace: Trace, allocator: Allocator, placements: Callable[[Arrays], None] | None
) -> tuple[Row, Arrays]:
    result = allocators.replay(trace, allocator, placements=placements or False)
    row = {
        "device_kind": "simulated" if allocator.device.simulated else "cuda",
        "candidate": allocator.info.candidate,
        "device_calls": result.device.calls,
        "device_seconds": result.device.seconds,
        "device_seconds_source": allocator.device.cost_source,
        "failures": result.stats.failures,
        "retries": result.stats.retries,
    }
    row |= _memory(result) | _fragmentation(result, allocator.info)
    row |= {name: count for name, count in result.counters.items() if name in SCHEMA}
    return row, {name: result.timeline[name] for name in _TIMELINE}


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
    cold, steady = [], []
    for _ in range(passes):
        made = _fresh(allocator, device)
        cold.append(allocators.time_pass(trace, made))
        steady.append(allocators.time_pass(trace, made))
    return {
        "seconds_per_event_cold": min(cold),
        "seconds_per_event_cold_median": statistics.median(cold),
        "seconds_per_event_steady": min(steady),
        "seconds_per_event_steady_median": statistics.median(steady),
    }


def _latency(trace: Trace, allocator: Allocator) -> Row:
    allocators.time_pass(trace, allocator)
    alloc, free, timer = allocators.time_each(trace, allocator)
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
