# SPDX-License-Identifier: Apache-2.0
"""Host and device time, from passes in which the allocators take turns."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.allocators import Allocator, DeviceStats
from allocbench.allocators.spec import parse
from allocbench.replays.recorded_settings import in_force
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import AnyTrace, StreamedTrace
from allocbench.workloads.distribution import Distribution

Row: TypeAlias = dict[str, Any]
Seconds: TypeAlias = NDArray[np.float32]

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}
"""In percent, by their names in columns."""
_NO_CALLS = np.empty(0, np.float32), np.empty(0, np.float32)


@dataclass
class Times:
    """The times of one allocator's passes.

    cold, steady: host seconds per event of each pass. statistics: other columns, a row for each
    pass. calls: host seconds of every alloc and of every free of the last pass, in order of the
    trace; None if single calls were not timed, or if the trace is not in memory. device_calls:
    those of the last steady replay.
    """

    cold: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    statistics: list[Row] = field(default_factory=list)
    calls: tuple[Seconds, Seconds] | None = None
    device_calls: int | None = None

    @property
    def row(self) -> Row:
        """The columns of `reports.rows` that hold times and their intervals."""
        row = _of_passes("cold", self.cold) | _of_passes("steady", self.steady)
        for name in self.statistics[0] if self.statistics else ():
            values = [columns[name] for columns in self.statistics]
            row[name] = statistics.median(values)
            if SCHEMA[name].low:
                row |= {SCHEMA[name].low: min(values), SCHEMA[name].high: max(values)}
        return row


def time_passes(
    trace: AnyTrace,
    devices: Mapping[str, str],
    passes: int,
    begin: Callable[[str], None] = lambda spec: None,
    *,
    single_calls: bool = True,
) -> dict[str, Times]:
    """The times of each spec on its device.

    Each pass makes an allocator and replays the trace through it: as a whole (cold), once more
    without a time, so that it learns what it can, as a whole again (steady), and call by call
    (where `single_calls` is true). On a GPU a new allocator replays it once more, for the device
    time. The specs take turns within each pass, and each pass begins with a different one, so that
    other load on the machine affects all of them equally. Only one allocator exists at a time, so
    they do not share the device. A spec without host time (see `has_host_time`) has no passes.

    begin: called with each spec before its first pass. Raises SpecError.
    """
    times = {spec: Times() for spec in devices}
    specs = [spec for spec, device in devices.items() if has_host_time(spec, device)]
    for number in range(passes):
        for spec in _turned(specs, number):
            if not number:
                begin(spec)
            columns = _one_pass(trace, spec, devices[spec], times[spec], single_calls)
            if columns:
                times[spec].statistics.append(columns)
    return times


def has_host_time(spec: str, device: str) -> bool:
    """Whether the allocator itself decides where its blocks are.

    The pool of `cuda_async` on a simulated device is a model of the driver, and the time that the
    model takes says nothing of the driver's.
    """
    placed_by_driver = allocators.info(parse(spec).layers[-1].name).from_driver_pool
    return not (placed_by_driver and allocators.make_device(device).simulated)


def _one_pass(trace: AnyTrace, spec: str, device: str, times: Times, single_calls: bool) -> Row:
    instance = _fresh(trace, spec, device)
    times.cold.append(allocators.time_pass(trace, instance))
    allocators.time_pass(trace, instance)
    before = instance.device.stats().calls
    times.steady.append(allocators.time_pass(trace, instance))
    times.device_calls = instance.device.stats().calls - before
    columns: Row = {}
    if single_calls:
        columns = _calls(trace, instance, times)
    if single_calls and not instance.device.simulated:
        del instance
        columns |= device_seconds(
            trace, allocators.replay(trace, _fresh(trace, spec, device)).device
        )
    return columns


def _calls(trace: AnyTrace, instance: Allocator, times: Times) -> Row:
    """The columns with the latencies of single calls. Keeps each call of a trace in memory."""
    alloc, free = Distribution(), Distribution()
    times.calls = None if isinstance(trace, StreamedTrace) else _NO_CALLS

    def seen(of_allocs: Seconds, of_frees: Seconds) -> None:
        alloc.add(of_allocs)
        free.add(of_frees)
        if times.calls is not None:
            times.calls = of_allocs, of_frees  # all of them, because the trace is one part

    timer = allocators.time_calls(trace, instance, seen)
    return _summary("alloc", alloc) | _summary("free", free) | {"timer_seconds": timer}


def device_seconds(trace: AnyTrace, device: DeviceStats) -> Row:
    """The columns with the device seconds of a replay of the trace."""
    return {
        "device_seconds": device.seconds,
        "device_seconds_per_event": device.seconds / max(1, len(trace)),
    }


def _fresh(trace: AnyTrace, spec: str, device: str) -> Allocator:
    return allocators.make(in_force(spec, trace), allocators.make_device(device))


def _turned(specs: Sequence[str], number: int) -> list[str]:
    first = number % max(1, len(specs))
    return [*specs[first:], *specs[:first]]


def _of_passes(which: str, seconds: Sequence[float]) -> Row:
    name = f"seconds_per_event_{which}"
    if not seconds:
        return {}
    return {
        name: min(seconds),
        f"{name}_median": statistics.median(seconds),
        f"{name}_max": max(seconds),
    }


def _summary(call: str, latencies: Distribution) -> Row:
    row: Row = {f"{call}_count": len(latencies)}
    if len(latencies):
        row[f"{call}_mean_seconds"] = latencies.mean()
        row[f"{call}_max_seconds"] = latencies.max()
        for name, percent in PERCENTILES.items():
            row[f"{call}_{name}_seconds"] = latencies.percentile(percent)
    return row
