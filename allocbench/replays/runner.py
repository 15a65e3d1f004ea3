# SPDX-License-Identifier: Apache-2.0
"""Runs of a trace through an allocator: counts, times and sufficient capacities.

Every command and report takes its numbers from here. The keys of a row are columns of
`reports.rows`, which defines each metric.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.allocators import (
    Allocator,
    Device,
    DeviceStats,
    ReplayResult,
    SpecError,
    StrategyInfo,
)
from allocbench.allocators.devices import COST_MODELS, cost_model, parse_bytes
from allocbench.allocators.spec import parse
from allocbench.base.cards import Card, cards, context
from allocbench.base.spec import Spec, name_of
from allocbench.base.spec import parse as parse_spec
from allocbench.base.trace import MAX_SIZE
from allocbench.replays import PASSES
from allocbench.replays.capacity import (
    STEP,
    Boundary,
    Shown,
    boundary,
    roomy,
    rough_capacity,
    trial,
)
from allocbench.replays.recorded_settings import in_force, with_conf
from allocbench.replays.timing import device_seconds, time_passes
from allocbench.reports.rows.assumptions import Cost, Estimate, to_text
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import AnyTrace, Trace
from allocbench.workloads.sorting import stable_order
from allocbench.workloads.step_orders import other_orders

Row: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, NDArray[Any]]


class LargeRunner:
    """One trace, which may be read part by part, on one device. Results are cached by spec.

    capacity: bytes of the device that a program can use. held: bytes reserved when the trace was
    recorded, before its first event; no smaller capacity counts as enough. outside: bytes that
    libraries held without PyTorch; a card has that much less. proceed: called
    before each trial of a capacity; what it raises ends the search.
    Every method raises SpecError for a spec that cannot be made on the device.
    """

    def __init__(
        self,
        trace: AnyTrace,
        device: str,
        workload: str = "",
        shown: defaultdict[str, list[Shown]] | None = None,
        proceed: Callable[[], None] = lambda: None,
    ) -> None:
        self.trace, self.device = trace, device
        self._proceed = proceed
        # By spec, as `with_conf` writes it.
        self._shown = defaultdict(list) if shown is None else shown
        self._counts: dict[str, Row] = {}
        self.workload = workload or trace.name
        opened = allocators.make_device(device)
        self.capacity, self.simulated = opened.capacity, opened.simulated
        self.held = trace.coverage.held
        self.outside = sum(outside_of(trace).values())
        self.counted = cache(self._counted)
        """The counts of a replay on the device, with stable addresses by default; see `counted`."""
        self.completes = cache(self._completes)
        """Whether every request succeeds with this capacity in bytes; default: the device's."""
        self.boundary = cache(self._boundary)
        """The smallest sufficient capacity, as `capacity.boundary` finds it."""
        self.rough_capacity = cache(self._rough_capacity)
        """A capacity on which the trace completes, as `capacity.rough_capacity` finds it."""
        self.seconds = cache(self._seconds)
        """Host seconds per event, as `time_passes` measures them for this spec alone."""

    def on(self, device: str) -> Self:
        """A runner of the same trace on a device that differs only in capacity."""
        return type(self)(self.trace, device, self.workload, self._shown, self._proceed)

    def min_capacity(self, spec: str) -> int | None:
        """Bytes of the smallest device that is enough, or None."""
        return self.boundary(spec).capacity

    def cards(self, spec: str, free: Callable[[Card], int] | None = None) -> tuple[str, ...]:
        """The names of the common cards on which every request succeeds, smallest first.

        free: bytes of a card that the allocator can have; None: what context and libraries leave.
        """
        return tuple(self._enough(spec, free))

    def card(self, spec: str) -> str | None:
        """The name of the smallest common card that is enough."""
        return next(self._enough(spec), None)

    def enough(self, spec: str) -> Row:
        """The columns on sufficient capacity: min_capacity, card and context."""
        card = self.card(spec)
        return {
            "min_capacity": self.min_capacity(spec),
            "card": card,
            "context": context(card),
        }

    def _enough(self, spec: str, free: Callable[[Card], int] | None = None) -> Iterator[str]:
        """The common cards that are enough. A GPU can check only cards that are not larger."""
        least = self.min_capacity(spec)
        for card in cards():
            room = free(card) if free else card.free - self.outside
            fits_here = self.simulated or room <= self.capacity
            if not fits_here or least is None or room <= least - STEP:
                continue
            if self.completes(spec, room):
                yield card.name

    def _counted(self, spec: str, stable: bool = True) -> Row:
        allocator = fresh(spec, self.device, self.trace)
        row = counted(self.trace, allocator, stable=stable)
        self._show(spec, not row["failures"], allocator)
        self._counts[spec] = row
        return row

    def _show(self, spec: str, completes: bool, replayed: Allocator) -> None:
        self._shown[with_conf(spec)].append(Shown(completes, *replayed.device.same_answers))

    def _completes(self, spec: str, capacity: int | None = None) -> bool:
        wanted = self.capacity if capacity is None else capacity
        known = self._shown[with_conf(spec)]
        found = next((one for one in known if one.first <= wanted < one.below), None)
        if found is None:
            if wanted == self.capacity:
                fresh(spec, self.device)  # which raises what `trial` does not
            self._proceed()
            found = trial(self.trace, spec, self.device, wanted)
            known.append(found)
        return found.completes and wanted >= self.held

    def _bounds(self, spec: str) -> dict[str, int]:
        counts = self._counts.get(spec) or self.counted(spec, stable=False)
        return {name: max(counts[name], self.held) for name in ("max_load", "peak_reserved")}

    def _unlimited(self, spec: str) -> dict[str, int]:
        """The same of a replay on a device that refuses nothing, or on a GPU as it is.

        So the capacity of the device does not change what is found for an allocator that completes
        on some devices and fails on some larger ones.
        """
        bounds = self._bounds(spec)
        refused = bounds["max_load"] > self.capacity or any(
            self._counts[spec][name] for name in ("retries", "failures")
        )
        if self.simulated and refused:
            ample = fresh(spec, roomy(self.device, self.trace), self.trace)
            counts = counted(self.trace, ample, stable=False)
            self._show(spec, not counts["failures"], ample)
            bounds["peak_reserved"] = counts["peak_reserved"]
        return {name: max(size, self.held) for name, size in bounds.items()}

    def _boundary(self, spec: str, above: bool = False) -> Boundary:
        return boundary(
            partial(self._completes, spec),
            **self._unlimited(spec),
            above=above,
            also=(self.capacity, *(card.free - self.outside for card in cards())),
            events=len(self.trace),
        )

    def _rough_capacity(self, spec: str, rival: int | None = None) -> int | None:
        return rough_capacity(partial(self._completes, spec), **self._bounds(spec), rival=rival)

    def _seconds(self, spec: str, passes: int = PASSES) -> Row:
        times = time_passes(self.trace, {spec: self.device}, passes, single_calls=False)
        return times[spec].row


class Runner(LargeRunner):
    """A runner of a trace in memory."""

    trace: Trace

    @cache  # noqa: B019 - a runner holds its trace anyway
    def other_orders(self, count: int, seed: int) -> tuple[Runner, ...]:
        """Runners of the trace with its steps in up to `count` other orders, on the same device.

        Orders whose load exceeds the device are left out: they fail with every allocator.
        """
        made = other_orders(self.trace, count, seed)
        return tuple(Runner(one, self.device) for one in made if one.max_load <= self.capacity)

    def _bounds(self, spec: str) -> dict[str, int]:
        load = max(self.trace.max_load, self.held)
        if load <= self.capacity or self.completes(spec):
            return super()._bounds(spec)
        return {"max_load": load, "peak_reserved": load}  # without a replay that fails many times


def outside_of(trace: AnyTrace) -> dict[str, int]:
    """Bytes that libraries held on the GPU outside of PyTorch when it was recorded, by library."""
    found = trace.provenance.extra.get("outside")
    told = found.items() if isinstance(found, dict) else ()  # a file may have any JSON value here
    return {name: held for name, held in told if type(held) is int and 0 < held <= MAX_SIZE}


def beside(device: str, trace: AnyTrace) -> str:
    """A simulated device on which libraries hold what they held beside the trace; else the same."""
    held = sum(outside_of(trace).values())
    if not held or name_of(device) != "sim":
        return device
    spec = parse_spec(device, first="capacity")
    context = parse_bytes(spec.options.get("context", 0)) + held
    kept = min(context, parse_bytes(spec.options["capacity"]) - 1)
    return str(Spec(spec.name, {**spec.options, "context": str(kept)}))


def fresh(allocator: str, device: str, trace: AnyTrace | None = None) -> Allocator:
    """A new allocator on a new device, for a trace as it was recorded; raises SpecError."""
    spec = allocator if trace is None else in_force(allocator, trace)
    return allocators.make(spec, allocators.make_device(device))


def innermost(text: str) -> str:
    """The name of the strategy in a spec, inside all wrappers; raises SpecError."""
    return parse(text).layers[-1].name


def device_kind(device: Device) -> str:
    """The kind of a device in a row: simulated or cuda."""
    return "simulated" if device.simulated else "cuda"


def counted(
    trace: AnyTrace,
    allocator: Allocator,
    placements: Callable[[Arrays], None] | None = None,
    stable: bool = True,
) -> Row:
    """The counts of a replay through a new allocator: bytes, ratios, device calls, failures.

    stable: whether to compare the addresses of the steps, which takes a third of the time.
    """
    stability = Stability()

    def seen(batch: Arrays) -> None:
        stability(batch)
        if placements is not None:
            placements(batch)

    wanted = placements is not None or (stable and trace.step_label >= 0)
    result = allocators.replay(trace, allocator, placements=wanted and seen)
    row = {
        "device_kind": device_kind(allocator.device),
        "capacity": allocator.device.capacity,
        "candidate": allocator.info.candidate,
        "device_calls": result.device.calls,
        **device_seconds(trace, result.device),
        **assumed(allocator.device, result.device),
        "device_seconds_source": time_source(allocator.device),
        "failures": result.stats.failures,
        "retries": result.stats.retries,
    }
    row |= _memory(result) | _fragmentation(result, allocator.info)
    row |= stability.shares()
    return row | {name: count for name, count in result.counters.items() if name in SCHEMA}


def steady_calls(trace: AnyTrace, allocator: Allocator) -> int:
    """The device calls of the third pass of an allocator that has made one pass."""
    allocators.time_pass(trace, allocator)
    before = allocator.device.stats().calls
    allocators.time_pass(trace, allocator)
    return allocator.device.stats().calls - before


def _memory(result: ReplayResult) -> Row:
    stats, peak = result.stats, result.peak
    # If requests failed, the reserved bytes are not comparable with the max load.
    served = not stats.failures
    return {
        "max_load": result.max_load,
        "peak_requested": stats.peak_requested,
        "peak_allocated": stats.peak_allocated,
        "peak_reserved": stats.peak_reserved,
        "wasted": stats.peak_reserved - result.max_load if served else None,
        "stranded": peak.reserved - peak.allocated,
        "overhead": _ratio(stats.peak_reserved, result.max_load) if served else None,
    }


def _fragmentation(result: ReplayResult, info: StrategyInfo) -> Row:
    stats, peak = result.stats, result.peak
    free = peak.reserved - peak.allocated
    external = (free - peak.largest_free) / free if free else 0.0
    keeps = info.keeps_free_blocks
    unused = stats.peak_reserved - stats.peak_allocated
    return {
        "fragmentation_ratio": _ratio(unused, stats.peak_reserved),
        "internal_fragmentation": _ratio(peak.allocated - peak.requested, peak.allocated),
        "internal_fragmentation_mean": result.internal_fragmentation_mean,
        "external_fragmentation": external if keeps else None,
        "external_fragmentation_mean": result.external_fragmentation_mean if keeps else None,
        "utilization": _ratio(stats.peak_allocated, stats.peak_reserved),
        "utilization_at_peak": _ratio(peak.allocated, peak.reserved),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def can_be_made(text: str, device: str) -> bool:
    """Whether a spec makes an allocator on the device of another spec."""
    try:
        fresh(text, device)
    except SpecError:
        return False
    return True


def time_source(device: Device) -> str:
    """Where the seconds of device calls come from: "estimate", by any cost model, or "measured"."""
    return "estimate" if device.cost_source in COST_MODELS else device.cost_source


def assumed(device: Device, stats: DeviceStats) -> dict[str, Any]:
    """The columns of `reports.rows` that describe an estimate; none for a measured time."""
    if not stats.calls_at_points:
        return {}
    costs = [
        Cost(call, point["bytes"], point["low"], point["seconds"], point["high"])
        for call, points in cost_model(device.cost_source)["calls"].items()
        for point in points
    ]
    calls = dict(zip(costs, stats.calls_at_points, strict=True))
    estimate = Estimate(calls=calls)
    return {
        "device_seconds_low": estimate.low,
        "device_seconds_high": estimate.high,
        "device_assumptions": to_text(calls.items()),
    }


_FIRST = 3
"""The first step that is compared with the step before it: the first step warms up."""
_COLUMNS = ("step", "requested", "segment", "offset")
_AT_ONCE = 1 << 20  # allocs that are collected before they are compared, to limit the memory needed


class Stability:
    """Compares the placements of each step with the step before: a callable for a replay.

    A place is the segment, counted in the order in which segments were obtained, and the offset.
    Keeps at most the placements of two consecutive steps, or some million.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._parts = [np.empty((len(_COLUMNS), 0), np.int64)]  # in order, from step _FIRST - 1 on
        self._at_once = self._most = at_once
        self._begin = _FIRST  # the first step that was not compared yet
        self._allocs = self._stable_allocs = self._bytes = self._stable_bytes = 0

    def __call__(self, placements: Mapping[str, NDArray[Any]]) -> None:
        """Add a batch, with the columns step, requested, segment and offset, in order."""
        step = placements["step"]
        first = int(np.searchsorted(step, _FIRST - 1))
        if first == len(step):
            return
        columns = [placements[name][first:].astype(np.int64) for name in _COLUMNS]
        self._parts.append(np.stack(columns))
        if sum(part.shape[1] for part in self._parts) > self._most:
            self._compare(int(step[-1]))

    def shares(self) -> dict[str, float | None]:
        """The shares of blocks and of bytes at a stable address, as the columns of results.

        Call it after the last batch.
        """
        last = self._parts[-1][0]
        if len(last):
            self._compare(int(last[-1]) + 1)
        some = self._allocs > 0
        return {
            "stable_address_share": self._stable_allocs / self._allocs if some else None,
            "stable_address_bytes_share": self._stable_bytes / self._bytes if some else None,
        }

    def _compare(self, end: int) -> None:
        """Compare the steps before `end`, which are complete, and keep the last of them."""
        allocs = np.concatenate(self._parts, axis=1)
        step, size = allocs[0], allocs[1]
        begin, kept, done = np.searchsorted(step, (self._begin, end - 1, end)).tolist()
        if begin < done:
            stable = _stable(allocs[:, :done])[begin:]
            judged = size[begin:done]
            self._allocs += len(judged)
            self._bytes += int(judged.sum())
            self._stable_allocs += int(np.count_nonzero(stable))
            self._stable_bytes += int(judged[stable].sum())
            self._begin = end
        self._parts = [allocs[:, kept:].copy()]
        self._most = max(self._at_once, 2 * self._parts[0].shape[1])


def _stable(allocs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool (m,): which of the allocs are at the place of their counterpart in the step before."""
    step, size, segment, offset = allocs
    # In the order of size, step, and number within the step, since the allocs are in order already.
    order = stable_order(size.astype(np.uint64))
    step, size = step[order], size[order]
    begins = np.flatnonzero(np.append(True, (np.diff(size) != 0) | (np.diff(step) != 0)))
    lengths = np.diff(np.append(begins, len(order)))
    # A group has the allocs of one size in one step; the one before it may be that of last step.
    follows = np.append(False, (np.diff(size[begins]) == 0) & (np.diff(step[begins]) == 1))
    before = np.append(0, begins[:-1])
    length_before = np.where(follows, np.append(0, lengths[:-1]), 0)
    number = np.arange(len(order)) - np.repeat(begins, lengths)
    compared = np.flatnonzero(number < np.repeat(length_before, lengths))
    here = order[compared]
    last = order[np.repeat(before, lengths)[compared] + number[compared]]
    stable = np.zeros(len(order), np.bool_)
    stable[here] = (
        (segment[here] == segment[last]) & (offset[here] == offset[last]) & (segment[here] >= 0)
    )
    return stable
