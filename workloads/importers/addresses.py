# SPDX-License-Identifier: Apache-2.0
"""Events that name blocks by address -> a trace, which names them by id.

An address serves many blocks one after the other. Recordings begin and end anywhere, so that
- a free of an address that was not allocated before ends a block that lived when the recording
  began: it is allocated before all others, with the size given by the free;
- a free of an address that is already free is dropped;
- an alloc of an address that is already allocated ends the old block, whose free is missing;
- a request for zero bytes is dropped.
The last three are counted in the trace's provenance, under `extra`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench.base.trace import Layout
from allocbench.workloads._native import pair_events
from allocbench.workloads.recordings import Gaps
from allocbench.workloads.sorting import distinct, stable_order
from allocbench.workloads.trace import (
    ALLOC,
    FREE,
    MARK,
    MAX_SIZE,
    TRIM,
    PrivatePool,
    Provenance,
    Trace,
    TraceError,
)
from allocbench.workloads.vocabulary import CAPTURE_END, MOST_POOLS, POOL_LEAVE, POOL_RELEASE

_MOST_STREAMS = 1 << 16
Range = tuple[int, int]
"""The first address, and the one after the last."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks alive at the end: one per element of the arrays, which have equal length.

    address: uint64. size: uint64, bytes requested. stream: int64, any number. label: uint32, index
    into the labels of the events. granted: uint64, bytes of the block, 0 if unknown. pool, names:
    as those of the events.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    stream: NDArray[np.int64]
    label: NDArray[np.uint32]
    granted: NDArray[np.uint64]
    pool: NDArray[np.int32] | None = None
    names: Mapping[str, NDArray[np.uint32]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class AddressedEvents:
    """Allocs and frees in order: one per element of the arrays, which have equal length.

    is_alloc: bool. address, size, stream, label: as those of `Blocks`; a free's size may be 0.
    time_ns: int64 or None, of any origin. labels: what `label` and `names` refer to; the first one
    is "". marks: which event (from 0) each mark comes before, and its name; in order. pool: int32,
    index into `pools`, or None. pools: the names of private pools; the first stands for none.
    names: further columns of names of the trace, as `label`.
    """

    is_alloc: NDArray[np.bool_]
    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    stream: NDArray[np.int64]
    label: NDArray[np.uint32]
    time_ns: NDArray[np.int64] | None = None
    labels: Sequence[str] = ("",)
    marks: Sequence[tuple[int, str]] = field(default_factory=list)
    pool: NDArray[np.int32] | None = None
    pools: Sequence[str] = ("",)
    names: Mapping[str, NDArray[np.uint32]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.is_alloc)


def none() -> Blocks:
    """No blocks."""
    return Blocks(
        np.empty(0, np.uint64),
        np.empty(0, np.uint64),
        np.empty(0, np.int64),
        np.empty(0, np.uint32),
        np.empty(0, np.uint64),
    )


class PoolUse(NamedTuple):
    """What happened before an event to a private pool, by its index; one of POOL_EVENTS."""

    before: int
    op: int
    pool: int


class Release(NamedTuple):
    """A trim before an event, of the free memory of a stream's private pool or, with 0, of all."""

    before: int
    stream: int = 0
    pool: int = 0


class Start(NamedTuple):
    """What a recording contains in addition to its events.

    layout: what was held at the start, None if unknown; its streams and pools are those of the
    events. releases, uses: in order. notes: additions to the provenance. traits: of private pools
    by index, where they are known.
    """

    layout: Layout | None = None
    releases: Sequence[Release] = ()
    notes: Mapping[str, Any] = {}
    uses: Sequence[PoolUse] = ()
    traits: Mapping[int, PrivatePool] = {}


class AddressedTrace(NamedTuple):
    """A trace, and what the events say about its m allocs.

    address: uint64 (m,). allocs_before: int64 (n + 1,), how many allocs of the trace come before
    each of the n events, and how many there are.
    """

    trace: Trace
    address: NDArray[np.uint64]
    allocs_before: NDArray[np.int64]


def assemble(
    events: AddressedEvents,
    provenance: Provenance,
    live: Blocks | None = None,
    laid_out: Callable[[AddressedEvents, Blocks], Start] | None = None,
) -> AddressedTrace:
    """The trace of n events and of the blocks known to be alive at the end.

    A block that was alive at the end and has no event was also alive at the start. Blocks alive at
    the start are allocated first, in address order. laid_out: determines what was held at the
    start, given the blocks that were alive then. Raises TraceError for more than 65536 streams.
    """
    pairs = _Pairs(events)
    initial = _initial(events, pairs, live or none())
    start = laid_out(events, initial) if laid_out else Start()
    layout = start.layout
    count, kept = len(initial.address), ~pairs.left_out
    begun = events.is_alloc & kept
    labels, mark = _labels(events)
    rows = _in_order(
        [
            _before(initial),
            _uses_of_pools(start, events),
            _marks(events, mark),
            *_allocs_and_frees(events, pairs, initial),
        ]
    )

    def named(
        first: NDArray[np.uint32] | None, then: NDArray[np.uint32] | None
    ) -> NDArray[np.uint32]:
        column = np.zeros(count + len(events) + 1, np.uint32)  # the last one is that of no name
        column[:count] = 0 if first is None else first
        column[count:-1] = 0 if then is None else then
        of_rows: NDArray[np.uint32] = column[rows.origin]
        return of_rows

    streams, pool = rows.stream, rows.pool
    if layout is not None:
        streams = np.concatenate([layout.stream.astype(np.int64), streams])
        pool = np.concatenate([layout.pool.astype(np.int32), pool])
    stream, (pool, pools) = _dense(streams), _pools(pool, events, start.traits)
    held = len(stream) - len(rows.stream)
    if layout is not None:
        layout = replace(layout, stream=stream[:held], pool=pool[:held])
    names: dict[str, Any] = {
        name: named(initial.names.get(name), events.names.get(name))
        for name in {**initial.names, **events.names}
    }
    trace = Trace(
        op=rows.op,
        block=rows.block,
        size=rows.size,
        stream=stream[held:],
        labels=labels,
        time_ns=_times(events, rows.event),
        label=named(initial.label, events.label) if len(events.labels) > 1 else None,
        provenance=replace(
            provenance,
            live_at_start=count,
            extra={**provenance.extra, **start.notes, **pairs.counts()},
        ),
        layout=layout,
        pool=pool[held:] if pools else None,
        pools=pools,
        **names,
    )
    address = np.concatenate([initial.address, events.address[begun]])
    return AddressedTrace(trace, address, np.append(0, np.cumsum(begun)) + count)


class _Rows(NamedTuple):
    """Rows of a trace, as arrays of equal length, or one number for all of them.

    when: position in the trace. event: the recorded event whose time a row has, -1 if the row comes
    before all events. origin: the block alive at the start, or after all of them the event, that
    names a row; -1 for none. The others: columns of the trace; stream and pool as in the events.
    """

    when: Any
    event: Any
    op: Any
    block: Any = 0
    size: Any = 0
    stream: Any = 0
    pool: Any = 0
    origin: Any = -1


_TYPES = _Rows(np.int64, np.int64, np.uint8, np.uint32, np.uint64, np.int64, np.int32, np.int32)
_PER_EVENT = 3
"""Positions in the trace for each event: its marks and pools, a missing free, and itself."""


def _in_order(groups: Sequence[_Rows]) -> _Rows:
    """The rows of all groups, in the order of `when` and, where this is equal, of the groups."""
    whole = [np.broadcast_arrays(*group) for group in groups]

    def column(n: int) -> NDArray[Any]:
        return np.concatenate([parts[n].astype(_TYPES[n]) for parts in whole])

    order = np.argsort(column(0), kind="stable")
    return _Rows(*(column(n)[order] for n in range(len(_TYPES))))


def _before(initial: Blocks) -> _Rows:
    """The allocs of the blocks alive at the start."""
    block = np.arange(len(initial.address))
    pool = 0 if initial.pool is None else initial.pool
    return _Rows(-1, -1, ALLOC, block, initial.size, initial.stream, pool, block)


def _uses_of_pools(start: Start, events: AddressedEvents) -> _Rows:
    """Trims and events of private pools."""
    before, op, stream, pool = np.array(_acts(start), np.int64).reshape(-1, 4).T
    following = _following(before, events)
    return _Rows(_PER_EVENT * before, following, op, stream=stream, pool=pool)


def _marks(events: AddressedEvents, label: Sequence[int]) -> _Rows:
    before = np.array([position for position, _ in events.marks], np.int64)
    block = np.array(label, np.int64)  # the number of its label
    return _Rows(_PER_EVENT * before, _following(before, events), MARK, block)


def _following(before: NDArray[np.int64], events: AddressedEvents) -> NDArray[np.int64]:
    """The event after each of some positions, or the last one."""
    return np.minimum(before, len(events) - 1)


def _allocs_and_frees(
    events: AddressedEvents, pairs: _Pairs, initial: Blocks
) -> tuple[_Rows, _Rows]:
    """The missing frees, and the events themselves."""
    kept = ~pairs.left_out
    # The block that each event began: by an alloc, or before the start, if it is its first free.
    begins = np.empty(len(events), np.int64)
    allocs = np.cumsum(events.is_alloc & kept) - 1 + len(initial.address)
    begins[events.is_alloc] = allocs[events.is_alloc]
    begins[pairs.from_start] = np.searchsorted(initial.address, events.address[pairs.from_start])

    unfreed, event = pairs.unfreed, np.flatnonzero(kept)

    def pool(of: NDArray[np.int64]) -> Any:
        return 0 if events.pool is None else events.pool[of]

    missing = _Rows(
        _PER_EVENT * unfreed + 1,
        unfreed,
        FREE,
        begins[pairs.still_alive],
        stream=events.stream[unfreed],
        pool=pool(unfreed),
    )
    is_alloc = events.is_alloc[event]
    return missing, _Rows(
        _PER_EVENT * event + 2,
        event,
        np.where(is_alloc, ALLOC, FREE),
        begins[pairs.begin][event],
        events.size[event] * is_alloc,
        events.stream[event],
        pool(event),
        np.where(is_alloc, event + len(initial.address), -1).astype(np.int32),
    )


def marks_before(
    time_ns: NDArray[np.int64], begun: Iterable[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Marks for `AddressedEvents`: (when, name) of each -> (the event that it comes before, name).

    time_ns: of the events, in order except where the clock was set back.
    """
    rising = np.maximum.accumulate(time_ns)
    in_order = sorted(begun, key=itemgetter(0))
    return [(int(np.searchsorted(rising, when)), name) for when, name in in_order]


class _Pairs:
    """Which events belong together: indices of events (from 0), and masks over them.

    begin: the event that began the block of each event. from_start: frees of blocks alive at the
    start. left_out: dropped events. unfreed: allocs at an address where a block was still alive.
    still_alive: the allocs of those blocks. addresses: all of them, in order.
    """

    def __init__(self, events: AddressedEvents) -> None:
        pairs = pair_events(events.is_alloc.view(np.uint8), events.address, events.size)
        self.begin, from_start, left_out, self.unfreed, self.still_alive, addresses = pairs.take()
        self.from_start, self.left_out = from_start.view(np.bool_), left_out.view(np.bool_)
        self.addresses = np.sort(addresses)
        self._nothing, self._stray = pairs.requests_for_nothing, pairs.stray_frees

    def counts(self) -> dict[str, int]:
        by_name = {
            "requests_for_no_bytes": self._nothing,
            "frees_left_out": self._stray,
            "frees_missing": len(self.unfreed),
        }
        return {name: count for name, count in by_name.items() if count}


def _initial(events: AddressedEvents, pairs: _Pairs, live: Blocks) -> Blocks:
    """The blocks alive at the start, in address order."""
    _, once = np.unique(live.address, return_index=True)
    alone = once[~np.isin(live.address[once], pairs.addresses) & (live.size[once] > 0)]
    freed = np.flatnonzero(pairs.from_start)
    address = np.concatenate([live.address[alone], events.address[freed]])
    order = np.argsort(address)

    def both(first: NDArray[Any], then: NDArray[Any] | None) -> NDArray[Any]:
        then = np.zeros(len(freed), first.dtype) if then is None else then[freed]
        return np.concatenate([first[alone], then])[order]

    pool = None
    if live.pool is not None or events.pool is not None:
        ours = np.zeros(len(live.address), np.int32) if live.pool is None else live.pool
        pool = both(ours, events.pool)
    return Blocks(
        address[order],
        both(live.size, events.size),
        both(live.stream, events.stream),
        both(live.label, None),
        both(live.granted, None),
        pool,
        {name: both(column, None) for name, column in live.names.items()},
    )


def _labels(events: AddressedEvents) -> tuple[tuple[str, ...], list[int]]:
    """All labels, those of the marks too, and the label of each mark."""
    labels = {label: n for n, label in enumerate(events.labels)} if len(events.labels) > 1 else {}
    marks = [labels.setdefault(name, len(labels)) for _, name in events.marks]
    return tuple(labels), marks


def _acts(start: Start) -> list[tuple[int, int, int, int]]:
    """Trims and events of private pools in order: the event before which each happened, op, stream
    and pool.

    PyTorch returns memory of a private pool only when nothing uses the pool any more, so its trim
    shows a release that is not known otherwise.
    """
    released = {use.pool for use in start.uses if use.op == POOL_RELEASE}
    ends = (POOL_LEAVE, CAPTURE_END, POOL_RELEASE)
    acts = [(use.before, 2 * (use.op not in ends), use.op, 0, use.pool) for use in start.uses]
    for before, stream, pool in start.releases:
        if pool and pool not in released:
            acts.append((before, 1, POOL_RELEASE, stream, pool))
        acts.append((before, 1, TRIM, stream, pool))
    return [(before, *act) for before, _, *act in sorted(acts, key=itemgetter(0, 1))]  # type: ignore[misc]


def _pools(
    pool: NDArray[np.int32], events: AddressedEvents, traits: Mapping[int, PrivatePool]
) -> tuple[NDArray[np.uint16], tuple[PrivatePool, ...]]:
    """Private pools numbered from 1 in order of appearance, 0 being none, and what they are."""
    numbers, index = distinct(np.append(0, pool).astype(np.int64))
    if len(numbers) > MOST_POOLS + 1:
        raise TraceError(
            f"has {len(numbers) - 1} private pools; a trace can have at most {MOST_POOLS}"
        )
    return index[1:].astype(np.uint16), tuple(
        replace(traits.get(number, PrivatePool()), name=events.pools[number])
        for number in numbers[1:].tolist()
    )


def _dense(streams: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Streams numbered in order of appearance, the default stream 0 being 0."""
    numbers, index = distinct(np.append(0, streams))
    if len(numbers) > _MOST_STREAMS:
        raise TraceError(f"has {len(numbers)} streams; a trace can have at most {_MOST_STREAMS}")
    return index[1:].astype(np.uint16)


def _times(events: AddressedEvents, event: NDArray[np.int64]) -> NDArray[np.uint64] | None:
    """Times since the earliest event, for the events that rows refer to; 0 for -1."""
    if events.time_ns is None:
        return None
    since = events.time_ns - events.time_ns.min(initial=MAX_SIZE)
    return np.append(since, 0)[event].astype(np.uint64)


def gaps_of(
    events: AddressedEvents,
    allocs_before: NDArray[np.int64],
    live: Blocks | None = None,
    known: Sequence[Range] = (),
) -> Gaps:
    """The gaps in n events.

    allocs_before: int64 (n + 1,), as in `AddressedTrace`. live: the blocks that lived at the end,
    all of them in the ranges of `known`.
    """
    is_event = ~events.is_alloc | (events.size > 0)
    order = np.flatnonzero(is_event)
    order = order[stable_order(events.address[order])]
    address, is_alloc = events.address[order], events.is_alloc[order]
    same = address[1:] == address[:-1]
    two_allocs = np.flatnonzero(same & is_alloc[1:] & is_alloc[:-1]) + 1
    two_frees = same & ~is_alloc[1:] & ~is_alloc[:-1] & (events.size[order[1:]] > 0)
    two_frees = np.flatnonzero(two_frees) + 1
    last = np.flatnonzero(np.append(~same, True)[: len(order)])
    last = last[_inside(address[last], known)]
    lives = np.isin(address[last], live.address) if live else np.zeros(len(last), np.bool_)
    not_freed, not_allocated = last[is_alloc[last] & ~lives], last[~is_alloc[last] & lives]

    begun = np.concatenate(
        [
            allocs_before[order[two_allocs - 1]],
            np.full(len(two_frees), -1),
            allocs_before[order[not_freed]],
            np.full(len(not_allocated), -1),
        ]
    )
    shown = np.concatenate(
        [
            allocs_before[order[two_allocs]],
            allocs_before[order[two_frees]],
            np.full(len(not_freed) + len(not_allocated), allocs_before[-1]),
        ]
    )
    position = np.concatenate([two_allocs, two_frees, not_freed, not_allocated])
    in_order = np.lexsort((order[position], shown))
    return Gaps(begun[in_order], shown[in_order], address[position][in_order])


def _inside(address: NDArray[np.uint64], ranges: Sequence[Range]) -> NDArray[np.bool_]:
    """Which addresses lie in one of some ranges that do not overlap."""
    begin, end = np.array(sorted(ranges), np.uint64).reshape(-1, 2).T
    index = np.searchsorted(begin, address, side="right").astype(np.int64) - 1
    inside = index >= 0
    inside[inside] = address[inside] < end[index[inside]]
    return inside
