# SPDX-License-Identifier: Apache-2.0
"""Replay: a trace run through an allocator, in C++ without the GIL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from allocbench.allocators import _core
from allocbench.allocators._core import Allocator, DeviceStats, Moment, Stats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Columns: TypeAlias = "dict[str, NDArray[Any]]"
CALL_KINDS = ("malloc", "free", "map", "unmap")
"""What `kind` of a device call stands for."""


class Trace(Protocol):
    """Arrays of equal length, one element for each event.

    `op` is 0 alloc, 1 free, 2 mark, 3 trim; `size` is in bytes and counts for allocs alone; a
    mark whose `block` is `step_label` begins a step.
    """

    @property
    def op(self) -> NDArray[np.uint8]:
        """Kind of each event."""
        ...

    @property
    def block(self) -> NDArray[np.uint32]:
        """Id of the block, or the label of a mark."""
        ...

    @property
    def size(self) -> NDArray[np.uint64]:
        """Bytes of each alloc."""
        ...

    @property
    def stream(self) -> NDArray[np.uint16]:
        """Stream of each alloc and free."""
        ...

    @property
    def step_label(self) -> int:
        """Label of the marks that begin a step, or -1."""
        ...


@dataclass(frozen=True)
class ReplayResult:
    """What a trace did to an allocator. Sizes in bytes.

    `peak` is the moment at which reserved bytes first had their maximum; `stats`, `device` and
    `counters` are those after the last event. `timeline` and `placements` are columns: arrays of
    equal length, one element for each sampled event and for each alloc event. A failed request is
    placed in segment -1 at offset -1 with size 0.

    `detail`, where it was asked for, holds columns too, bytes throughout:
    placements: address, size; one element for each alloc event, 0 and 0 for a failed one.
    envelope: event, requested, allocated, reserved; of each of `samples` intervals the events with
        the lowest and the highest of each, so that no peak is lost.
    device_calls: event, kind (an index into CALL_KINDS), refused (0 or 1), address (0 when
        refused), size, seconds; in order.
    free_blocks: event, size_class, blocks, bytes; the free blocks of 2^size_class bytes up to
        twice that, at about a quarter as many events as the intervals.
    """

    max_load: int
    peak: Moment
    stats: Stats
    device: DeviceStats
    counters: dict[str, int]
    internal_fragmentation_mean: float
    external_fragmentation_mean: float
    timeline: Columns
    placements: Columns
    detail: Mapping[str, Columns] | None = None


def replay(
    trace: Trace,
    allocator: Allocator,
    *,
    samples: int = 1000,
    placements: bool | Callable[[Columns], None] = False,
    keep: bool = False,
    detail: bool = False,
) -> ReplayResult:
    """Run `trace` through `allocator` and measure.

    A request that fails is counted and the replay goes on; the free of its block is skipped.
    Blocks alive at the end are freed afterwards, unless `keep` is true. With `placements=True` the
    result holds where each alloc was placed; a callable gets that in parts instead, some thousand
    allocs at a time, and nothing is kept. With `detail` the result has what pictures need; to look
    at the free blocks counts as steps of the allocator. Raises ValueError for arrays that are no
    trace.
    """
    parts: list[Columns] = []
    sink = placements if callable(placements) else parts.append if placements else None
    found = _core.measure(_arrays(trace), allocator, samples, sink, keep, detail)
    return ReplayResult(
        max_load=found.max_load,
        peak=found.peak,
        stats=found.stats,
        device=found.device,
        counters=found.counters,
        internal_fragmentation_mean=found.internal_fragmentation_mean,
        external_fragmentation_mean=found.external_fragmentation_mean,
        timeline=found.timeline,
        placements=_joined(parts),
        detail=found.detail,
    )


def time_pass(trace: Trace, allocator: Allocator) -> float:
    """Host seconds per event of one pass, the allocator's lock included."""
    return _core.time_pass(_arrays(trace), allocator)


def time_each(
    trace: Trace, allocator: Allocator
) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Host seconds of each alloc and of each free, in the order of the trace.

    The third value is the cost of reading the timer, which has been subtracted from each.
    """
    return _core.time_each(_arrays(trace), allocator)


def completes(trace: Trace, allocator: Allocator) -> bool:
    """Tell whether every request succeeds; stops at the first that fails."""
    return _core.completes(_arrays(trace), allocator)


def _joined(parts: list[Columns]) -> Columns:
    import numpy as np

    names = parts[0] if parts else {}
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _arrays(trace: Trace) -> _core.TraceArrays:
    return _core.TraceArrays(trace.op, trace.block, trace.size, trace.stream, trace.step_label)
