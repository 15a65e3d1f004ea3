# SPDX-License-Identifier: Apache-2.0
"""The first request of a trace that an allocator fails, and the memory at that time."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.allocators import OutOfMemory, Segment
from allocbench.base.text import one_line
from allocbench.replays.details import address_map
from allocbench.replays.runner import fresh
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.workloads import FREE, MARK, Trace
from allocbench.workloads.block_origins import OF_OPTIMIZERS, derived_places, names_at, origins

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Failure:
    """A failed request. All sizes are bytes, after the allocator gave up.

    event: of the request, from 0. step: number of steps begun. operator: that requested it, or
    empty. live: requested bytes of the live blocks; allocated: their bytes after rounding.
    reserved, capacity: bytes held from the device, and its size. largest_free: the largest free
    block of the allocator; room: bytes that the device still had. segments: those held, with their
    blocks. pins: the live blocks, numbered by their allocs, in the way of the cheapest place for
    the request; in_one_stretch: whether that place is in one segment; otherwise whole segments
    would have to be returned. address: where each block of the trace was placed.
    """

    event: int
    step: int
    operator: str
    requested: int
    live: int
    allocated: int
    reserved: int
    capacity: int
    largest_free: int
    segments: list[Segment]
    pins: Ints
    in_one_stretch: bool
    address: Ints
    workload: TraceBlocks

    @property
    def load(self) -> int:
        """Most bytes that the whole trace has live, this request included."""
        return max(self.workload.trace.max_load, self.live + self.requested)

    @property
    def free(self) -> int:
        """Bytes held from the device but allocated to nothing."""
        return self.reserved - self.allocated

    @property
    def room(self) -> int:
        """Bytes that the device still had."""
        return self.capacity - self.reserved


def first_failure(trace: Trace, allocator: str, device: str) -> Failure | None:
    """The first request that fails, or None if every request is served. Raises SpecError.

    The trace is then replayed up to the request for its placements and device calls, and once more
    for the allocator's own view of its memory.
    """
    event = allocators.failing_event(trace, fresh(allocator, device, trace))
    if event is None:
        return None
    replayed, tried = fresh(allocator, device, trace), before(trace, event + 1)
    result = allocators.replay(tried, replayed, keep=True, detail=True)
    assert result.detail is not None
    placements, calls = result.detail["placements"], result.detail["device_calls"]
    capacity = replayed.device.capacity
    blocks_map = address_map(TraceBlocks.of(trace.name, tried), placements, calls, capacity, most=1)
    assert blocks_map.failure is not None
    workload = TraceBlocks.of(trace.name, trace)
    alive = np.flatnonzero((workload.first < event) & (workload.last > event))

    again = fresh(allocator, device, trace)
    allocators.replay(before(trace, event), again, keep=True)
    requested = int(trace.size[event])
    try:
        again.allocate(requested, int(trace.stream[event]))
    except OutOfMemory:
        pass
    else:
        raise AssertionError(f"event {event} fails in one replay but not in another")
    stats = again.stats()
    steps = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    return Failure(
        event=event,
        step=int(np.searchsorted(steps, event)),
        operator=operators(trace, np.array([event]))[0],
        requested=requested,
        live=int(workload.size[alive].sum()),
        allocated=stats.allocated,
        reserved=stats.reserved,
        capacity=capacity,
        largest_free=again.largest_free(),
        segments=again.snapshot(),
        pins=blocks_map.pins,
        in_one_stretch=blocks_map.failure["place"] == "stretch",
        address=placements["address"].astype(np.int64),
        workload=workload,
    )


def before(trace: Trace, event: int) -> Trace:
    """The events of a trace before one of them, with ids below the number of their allocs.

    Without the layout where some of its blocks come later: such a failure shows that no allocator
    took it over.
    """
    cut: dict[str, Any] = {name: column[:event].copy() for name, column in trace.columns().items()}
    blocks = cut["op"] <= FREE
    _, cut["block"][blocks] = np.unique(cut["block"][blocks], return_inverse=True)
    held = trace.layout is not None and len(trace.layout.block_size) <= event
    return replace(trace, **cut, layout=trace.layout if held else None)


def operators(trace: Trace, events: Ints) -> list[str]:
    """The operator or line of each of some allocs, or what its backward pass belongs to.

    Otherwise the last mark before it, or "". The marks of an imported recording and those of
    PyTorch's optimizers do not count: the range that one begins may have ended.
    """
    named = names_at(trace, trace.label, events)
    found = origins(trace)
    index = np.searchsorted(found.allocs, events)
    derived = found.derived[index]
    named[derived] = derived_places(trace, found, index[derived])
    ours = np.array([not label.startswith(OF_OPTIMIZERS) for label in trace.labels], np.bool_)
    marks = np.flatnonzero((trace.op == MARK) & (trace.provenance.kind != "imported"))
    marks = marks[ours[trace.block[marks]]]
    last = np.searchsorted(marks, events) - 1
    return [
        one_line(name or (trace.labels[int(trace.block[marks[row]])] if row >= 0 else ""))
        for name, row in zip(named, last.tolist(), strict=True)
    ]
