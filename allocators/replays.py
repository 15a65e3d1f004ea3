# SPDX-License-Identifier: Apache-2.0
"""Replays of a trace through an allocator (C++, without the GIL)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from allocbench.allocators import _core
from allocbench.allocators._core import Allocator, DeviceStats, Moment, Stats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allocbench.base.trace import AnyTrace, EventArrays, Layout

Columns: TypeAlias = "dict[str, NDArray[Any]]"
Seconds: TypeAlias = "NDArray[np.float32]"
CALL_KINDS = ("malloc", "free", "map", "unmap")
"""Names for the values of `kind` in device calls."""


@dataclass(frozen=True)
class Change:
    """What a program calls before an event to change how `caching` works from there on.

    event: index of the event. empty_cache: whether it first gives free memory back. settings: a
    configuration, as `torch.cuda.memory._set_allocator_settings` takes it, or None. PyTorch resets
    some of the settings that it does not name; see the page of `caching`. memory_fraction: what
    `torch.cuda.memory.set_per_process_memory_fraction` takes, from 0 to 1, or None.
    """

    event: int
    empty_cache: bool = False
    settings: str | None = None
    memory_fraction: float | None = None


@dataclass(frozen=True)
class ReplayResult:
    """The result of running a trace through an allocator. Sizes are in bytes.

    `peak` is the moment at which reserved bytes first reached their maximum. `stats`, `device` and
    `counters` hold the values after the last event. `timeline` and `placements` are columns: arrays
    of equal length with one element per sampled event and per alloc event. The placement of a
    failed request is segment -1, offset -1, size 0. Each placement also has the requested bytes and
    the number of steps that had begun.

    `detail`, if requested, contains columns too, with sizes in bytes:
    placements: address, size; one element per alloc event, both 0 for a failed one.
    envelope: event, requested, allocated, reserved; for each of `samples` intervals, the events
        with the lowest and highest value of each, so that no peak is lost.
    device_calls: event, kind (an index into CALL_KINDS), refused (0 or 1), address (0 when
        refused), size, seconds; in order.
    free_blocks: event, size_class, blocks, bytes; the free blocks with sizes from 2^size_class to
        just below twice that, at about a quarter as many events as there are intervals.
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
    trace: AnyTrace,
    allocator: Allocator,
    *,
    samples: int = 1000,
    placements: bool | Callable[[Columns], None] = False,
    keep: bool = False,
    detail: bool = False,
    changes: Iterable[Change] = (),
) -> ReplayResult:
    """Run `trace` through `allocator` and measure it.

    A failing request is counted and the replay continues; the free of its block is skipped. Blocks
    still alive at the end are freed afterwards unless `keep` is true. With `placements=True`, the
    result contains where each alloc was placed; a callable receives the placements in batches of
    some thousand allocs instead, and the result keeps none. With `detail`, the result contains the
    data for charts; the snapshots that this needs add to the allocator's search steps. `changes`
    are made before their events, in this order. Raises ValueError if the arrays are not a valid
    trace, if a change has an event that the trace does not have, or if the changes are not in the
    order of their events; SpecError for a change that the allocator cannot make.
    """
    parts: list[Columns] = []
    sink = placements if callable(placements) else parts.append if placements else None
    measurement = _core.measure(_parts(trace, changes), allocator, samples, sink, keep, detail)
    copied: dict[str, Any] = {
        one.name: getattr(measurement, one.name, None) for one in fields(ReplayResult)
    }
    return ReplayResult(**copied | {"placements": _joined(parts)})


def time_pass(trace: AnyTrace, allocator: Allocator) -> float:
    """Host seconds per event of one pass, including the allocator's lock."""
    return _core.time_pass(_parts(trace), allocator)


def time_calls(
    trace: AnyTrace, allocator: Allocator, seen: Callable[[Seconds, Seconds], None]
) -> float:
    """Call `seen` for each part with the host seconds of each alloc and of each free, in order.

    Returns the cost of reading the timer in seconds, already subtracted from each.
    """
    return _core.time_each(_parts(trace), allocator, seen)


def time_each(trace: AnyTrace, allocator: Allocator) -> tuple[Seconds, Seconds, float]:
    """Host seconds of each alloc and of each free, in trace order.

    The third value is the cost of reading the timer, already subtracted from each.
    """
    import numpy as np

    calls = [(np.empty(0, np.float32), np.empty(0, np.float32))]
    timer = time_calls(trace, allocator, lambda alloc, free: calls.append((alloc, free)))
    return *calls[-1], timer  # a trace in memory is one part, or none without events


def failing_event(
    trace: AnyTrace, allocator: Allocator, changes: Iterable[Change] = ()
) -> int | None:
    """The first event whose request fails, where the replay stops; None if every one succeeds.

    changes: as for `replay`.
    """
    return _core.failing_event(_parts(trace, changes), allocator)


def completes(trace: AnyTrace, allocator: Allocator, changes: Iterable[Change] = ()) -> bool:
    """Whether every request succeeds; arguments as for `failing_event`."""
    return failing_event(trace, allocator, changes) is None


def _joined(parts: list[Columns]) -> Columns:
    import numpy as np

    names = parts[0] if parts else {}
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _parts(trace: AnyTrace, changes: Iterable[Change] = ()) -> _core.TraceParts:
    events = len(trace)
    if trace not in _STARTS:
        held = [] if trace.layout is None else _held(trace.layout, _first_sizes(trace))
        traits = [
            _core.PoolTraits(pool.use_on_oom, pool.no_split, pool.rank) for pool in trace.pools
        ]
        _STARTS[trace] = _core.TraceStart(held, traits)
    parts = map(_arrays, trace.parts())
    return _core.TraceParts(
        events, parts, trace.step_label, _STARTS[trace], _changes(changes, events)
    )


_STARTS = WeakKeyDictionary["AnyTrace", _core.TraceStart]()
"""Converting them takes longer than many a replay."""


def _first_sizes(trace: AnyTrace) -> NDArray[np.uint64]:
    import numpy as np

    return next((part.size for part in trace.parts()), np.empty(0, np.uint64))


def _arrays(part: EventArrays) -> _core.PartArrays:
    import numpy as np

    pool = np.empty(0, np.uint16) if part.pool is None else part.pool
    # Block numbers are indices in C++, so nobody may change them after they were checked.
    op = part.op.copy() if part.op.flags.writeable else part.op
    block = part.block.copy() if part.block.flags.writeable else part.block
    return _core.PartArrays(op, block, part.size, part.stream, pool, part.id)


def _changes(changes: Iterable[Change], events: int) -> list[_core.Change]:
    checked, last = [], 0
    for change in changes:
        if not 0 <= change.event < events:
            raise ValueError(f"a change before event {change.event} of {events:,} events")
        if change.event < last:
            raise ValueError(f"a change before event {change.event} after one before event {last}")
        last = change.event
        checked.append(
            _core.Change(change.event, change.empty_cache, change.settings, change.memory_fraction)
        )
    return checked


def _held(layout: Layout, requested: NDArray[np.uint64]) -> list[_core.HeldSegment]:
    blocks: list[list[tuple[int, int, int]]] = [[] for _ in layout.address]
    rows = zip(
        layout.segment_of_block.tolist(),
        layout.block_address.tolist(),
        layout.block_size.tolist(),
        requested[: len(layout.block_size)].tolist(),
        strict=True,
    )
    for segment, *block in rows:
        blocks[segment].append((block[0], block[1], block[2]))
    return [
        _core.HeldSegment(
            address, size, stream, small, reservation, rank, layout.of_bfc, pool, inside
        )
        for address, size, stream, small, reservation, rank, pool, inside in zip(
            layout.address.tolist(),
            layout.size.tolist(),
            layout.stream.tolist(),
            layout.small.tolist(),
            layout.reservation.tolist(),
            layout.rank.tolist(),
            layout.pool.tolist(),
            blocks,
            strict=True,
        )
    ]
