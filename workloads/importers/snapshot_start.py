# SPDX-License-Identifier: Apache-2.0
"""What the allocator of a memory snapshot held when its recording began, and when it trimmed.

The segments held at the start follow from those at the end, by undoing the calls to the device.

The event of a free contains the requested bytes, not the size of the block. The size follows from
PyTorch's rules: the rest of a split block becomes a free block if it has at least 512 bytes in a
segment of small blocks or in an expandable segment, or more than 1 MiB in any other segment. So a
segment of large blocks has no block below 1 MiB, and a smaller gap belongs to the block before it.

A trim is a run of calls that return segments to the device. `empty_cache` returns every segment
that is wholly free. So does a request that the device refused, before it retries; a trim there has
the same effect. A run that leaves free segments was made by the allocator itself, for a
garbage_collection_threshold or max_split_size. Segments of a private pool are returned once nothing
uses the pool any more, which releases the pool.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedKeyList

from allocbench.base.trace import Layout
from allocbench.workloads._native import SMALL_REQUEST, SMALL_SEGMENT, PytorchSettings
from allocbench.workloads.importers.addresses import AddressedEvents, Blocks, Release
from allocbench.workloads.recordings import CALLS
from allocbench.workloads.sorting import stable_order

SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = CALLS
GROWTH, SHRINKING = (SEGMENT_ALLOC, SEGMENT_MAP), (SEGMENT_FREE, SEGMENT_UNMAP)
ACTIONS = (*GROWTH, *SHRINKING)


class UnknownLayoutError(Exception):
    """Why the layout at the start is unknown; one line."""


def rules_of(options: Mapping[str, str]) -> PytorchSettings:
    """The settings of options of `caching`; raises UnknownLayoutError for those out of range."""
    try:
        return PytorchSettings(options)
    except ValueError as error:
        raise UnknownLayoutError(f"PyTorch has no such settings: {error}") from None


class SegmentCall(NamedTuple):
    """A call to the device; `position` is the number of allocs and frees recorded before it.

    pool: the number of its private pool, -1 if that is unknown.
    """

    action: str
    address: int
    size: int
    stream: int
    pool: int
    position: int


class NotedSegment(NamedTuple):
    """A segment, or mapped range, that a private pool had before an alloc or free."""

    position: int
    pool: int
    address: int
    size: int
    stream: int


class Lifetime(NamedTuple):
    """The allocs and frees, from `since` up to `until`, during which a pool has some addresses."""

    begin: int
    end: int
    stream: int
    pool: int
    since: int
    until: int


def name_pools(
    calls: list[SegmentCall], noted: Sequence[NotedSegment], positions: int
) -> list[Lifetime]:
    """Set the pools of calls whose segments were noted, and return when these segments existed.

    positions: number of allocs and frees.
    """
    address = np.array([call.address for call in calls], np.uint64)
    found = list[Lifetime]()
    for segment in noted:
        begin, end = segment.address, segment.address + segment.size
        inside = np.flatnonzero((address >= begin) & (address < end)).tolist()
        of_noted = list[int]()
        for number in inside:
            is_before = calls[number].position <= segment.position
            if calls[number].action in SHRINKING:
                of_noted = [] if is_before else [*of_noted, number]
            elif is_before:
                of_noted.append(number)
            else:
                break
        for number in of_noted:
            calls[number] = calls[number]._replace(pool=segment.pool)
        grown, shrunk = (
            [calls[n].position for n in of_noted if calls[n].action in actions]
            for actions in (GROWTH, SHRINKING)
        )
        since, until = min(grown, default=0), max(shrunk, default=positions)
        found.append(Lifetime(begin, end, segment.stream, segment.pool, since, until))
    return found


@dataclass(frozen=True)
class Segment:
    """A segment, or a mapped range of an expandable one; small is None if unknown."""

    address: int
    size: int
    stream: int
    pool: int = 0
    small: bool | None = None
    expandable: bool = False

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.size

    @property
    def owner(self) -> str:
        """Stream, pool and kind, as a text, whose hash nobody can choose."""
        return f"{self.stream} {self.pool} {self.small}"


def _segment_of(call: SegmentCall) -> Segment:
    """What a call is about. Small blocks have segments and pages of 2 MiB, others larger ones."""
    small = call.size == SMALL_SEGMENT
    return Segment(call.address, call.size, call.stream, max(0, call.pool), small)


def at_start(final: Sequence[Segment], calls: Sequence[SegmentCall]) -> list[Segment]:
    """The segments before the calls, in address order.

    Raises UnknownLayoutError if the calls do not lead to the final segments.
    """
    held = {str(segment.address): segment for segment in final}
    if len(held) < len(final):
        raise UnknownLayoutError("two of its segments have the same address")
    ranges = _Ranges([segment for segment in final if segment.expandable])
    for segment in final:
        if segment.expandable:
            del held[str(segment.address)]
    for call in reversed(calls):
        if call.action == SEGMENT_ALLOC:
            obtained = held.pop(str(call.address), None)
            if obtained is None or obtained.size != call.size:
                raise UnknownLayoutError(
                    f"a segment of {call.size} bytes was obtained at {call.address:#x}, "
                    "which is neither freed later nor held at the end"
                )
        elif call.action == SEGMENT_FREE:
            if str(call.address) in held:
                raise UnknownLayoutError(f"the segment at {call.address:#x} was freed twice")
            held[str(call.address)] = _segment_of(call)
        elif call.action == SEGMENT_MAP:
            ranges.remove(call)
        else:
            ranges.add(call)
    ordered = sorted([*held.values(), *ranges.all], key=_address)
    _refuse_overlaps(ordered)
    return ordered


class _Ranges:
    """Mapped ranges of expandable segments; adjacent ranges of a pool are merged.

    all: in address order, without overlaps.
    """

    def __init__(self, ranges: Sequence[Segment]) -> None:
        self.all = SortedKeyList(ranges, key=_address)
        _refuse_overlaps(self.all)

    def remove(self, call: SegmentCall) -> None:
        begin, end = call.address, call.address + call.size
        n = self.all.bisect_key_right(begin) - 1
        if n < 0 or end > self.all[n].end:
            raise UnknownLayoutError(
                f"{call.size} bytes were mapped at {begin:#x}, which are neither unmapped later "
                "nor held at the end"
            )
        segment = self.all.pop(n)
        pieces = [(segment.address, begin), (end, segment.end)]
        self.all.update(
            replace(segment, address=low, size=high - low) for low, high in pieces if low < high
        )

    def add(self, call: SegmentCall) -> None:
        begin, end = call.address, call.address + call.size
        new = replace(_segment_of(call), small=None, expandable=True)
        first = last = self.all.bisect_key_right(begin)
        around = self.all[max(0, first - 1) : last + 1]
        _refuse_overlaps(sorted([*around, new], key=_address))
        for near in around:
            if near.end != begin and near.address != end:
                continue
            if near.stream != new.stream or (call.pool >= 0 and near.pool != new.pool):
                continue
            first, last = first - (near.end == begin), last + (near.address == end)
            new = replace(
                new,
                address=min(new.address, near.address),
                size=new.size + near.size,
                pool=near.pool,
                small=near.small,
            )
        del self.all[first:last]
        self.all.add(new)


_address = attrgetter("address")


def _refuse_overlaps(ordered: Sequence[Segment]) -> None:
    """Raise UnknownLayoutError if segments in address order overlap."""
    for segment, following in pairwise(ordered):
        if segment.end > following.address:
            raise UnknownLayoutError(
                f"the segments at {segment.address:#x} and {following.address:#x} overlap"
            )


def with_kinds(
    segments: Sequence[Segment],
    calls: Sequence[SegmentCall],
    address: NDArray[np.uint64],
    size: NDArray[np.uint64],
    large_page: int,
) -> list[Segment]:
    """The segments; unknown kinds follow from the blocks (address, requested bytes) in them.

    Only blocks allocated before the first unmapping in a range count, because the device may later
    map its addresses for another pool. If there is no such block, a range of whole pages of
    `large_page` bytes has large blocks.
    """
    order = stable_order(address)
    sorted_address = address[order]
    until = _first_unmaps(segments, calls, len(address))
    with_small = []
    for segment, first_unmap in zip(segments, until, strict=True):
        if segment.small is None:
            limits = np.array([segment.address, segment.end], np.uint64)
            low, high = np.searchsorted(sorted_address, limits)
            inside = order[low:high]
            inside = inside[inside < first_unmap]
            small = segment.size % large_page != 0
            if len(inside):
                small = bool(size[inside].max() <= SMALL_REQUEST)
            segment = replace(segment, small=small)
        with_small.append(segment)
    return with_small


def _first_unmaps(
    segments: Sequence[Segment], calls: Sequence[SegmentCall], never: int
) -> list[int]:
    """The position of the first unmapping in each of some segments, in address order, or `never`.

    The first call that unmaps a part of a segment decides, so each segment is passed once.
    """
    begins, ends = [segment.address for segment in segments], [segment.end for segment in segments]
    first = [never] * len(segments)
    undecided = list(range(len(segments) + 1))  # for each place, a place from which one may follow
    unmaps = (call for call in calls if call.action == SEGMENT_UNMAP)
    for call in sorted(unmaps, key=attrgetter("position")):
        place, end = bisect_right(ends, call.address), call.address + call.size
        passed = []
        while place < len(segments) and begins[place] < end:
            if undecided[place] == place:
                first[place], undecided[place] = min(never, call.position), place + 1
            passed.append(place)
            place = undecided[place]
        for one in passed:
            undecided[one] = place
    return first


def layout_of(
    segments: Sequence[Segment],
    calls: Sequence[SegmentCall],
    settings: PytorchSettings,
    events: AddressedEvents,
    initial: Blocks,
) -> Layout:
    """The layout at the start.

    segments: those held at the start, in address order. calls: later calls to the device. Raises
    UnknownLayoutError if blocks and segments contradict each other.
    """
    begin = np.array([segment.address for segment in segments], np.uint64)
    end = np.array([segment.end for segment in segments], np.uint64)
    inside = np.searchsorted(begin, initial.address, side="right").astype(np.int64) - 1
    lost = inside < 0
    lost[~lost] = initial.address[~lost] >= end[inside[~lost]]
    if lost.any():
        address = int(initial.address[lost.argmax()])
        raise UnknownLayoutError(
            f"the block at {address:#x} is not in a segment that was held at that time"
        )
    allocs = _Allocs(events)
    size = initial.granted.copy()
    address = initial.address.tolist()
    for n in np.flatnonzero(size == 0).tolist():
        segment = segments[inside[n]]
        limit = segment.end
        if n + 1 < len(address):
            limit = min(limit, address[n + 1])
        size[n] = _granted(address[n], int(initial.size[n]), segment, limit, settings, allocs)
    layout = Layout(
        address=begin,
        size=end - begin,
        stream=np.array([segment.stream for segment in segments], np.int64),
        small=np.array([bool(segment.small) for segment in segments], np.bool_),
        reservation=_reservations(segments, calls, events),
        rank=_ranks(len(segments), calls),
        block_address=initial.address,
        block_size=size,
        pool=np.array([segment.pool for segment in segments], np.int64),
    )
    if rule := layout.first_broken():
        raise UnknownLayoutError(rule)
    if np.any(size < initial.size):
        raise UnknownLayoutError("a block is smaller than its request")
    return layout


class _Allocs:
    """The allocs of events by address."""

    def __init__(self, events: AddressedEvents) -> None:
        allocs = np.flatnonzero(events.is_alloc)
        order = stable_order(events.address[allocs])
        self._earliest, self._address = _Lowest(allocs[order]), events.address[allocs][order]
        frees = np.flatnonzero(~events.is_alloc)
        freed, first = np.unique(events.address[frees], return_index=True)
        self._freed, self._first = freed, frees[first]
        self._end = len(events.address)

    def next_above(self, address: int, low: int, high: int) -> int | None:
        """The lowest alloc in [low, high) while the first block at `address` was alive."""
        found = int(np.searchsorted(self._freed, np.uint64(address)))
        freed = found < len(self._freed) and self._freed[found] == address
        until = self._first[found] if freed else self._end
        begin, end = np.searchsorted(self._address, np.array([low, high], np.uint64))
        place = self._earliest.first_below(int(begin), int(until))
        return int(self._address[place]) if place < end else None


class _Lowest:
    """The lowest of each 2, 4, 8 and so on of some values, to find values without passing all."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self._levels = [values]
        while len(values) > 1:
            values = np.minimum.reduceat(values, np.arange(0, len(values), 2))
            self._levels.append(values)

    def first_below(self, place: int, limit: int) -> int:
        """The first place from this one on whose value is below a limit, or a place after all."""
        level = 0
        while place < len(self._levels[level]) and self._levels[level][place] >= limit:
            place += 1
            while place % 2 == 0 and level + 1 < len(self._levels):
                place, level = place // 2, level + 1
        if place == len(self._levels[level]):
            return len(self._levels[0])
        while level:
            level, place = level - 1, 2 * place
            place += bool(self._levels[level][place] >= limit)
        return place


def _granted(
    address: int,
    requested: int,
    segment: Segment,
    limit: int,
    settings: PytorchSettings,
    allocs: _Allocs,
) -> int:
    """Size in bytes of the block of a request; the block ends no later than `limit`."""
    rounded = settings.rounded(requested)
    if segment.small or segment.expandable:
        return rounded
    if settings.max_split is not None and rounded >= settings.max_split:
        return segment.end - address  # such a block is never split
    least = address + rounded
    limit = min(limit, allocs.next_above(address, least, least + SMALL_REQUEST + 1) or limit)
    return rounded if limit - least > SMALL_REQUEST else limit - address


def _ranks(count: int, calls: Sequence[SegmentCall]) -> NDArray[np.uint32]:
    """The order in which segments were obtained: by address, ascending or descending as in `calls`.

    Snapshots do not contain it. The order is descending unless the calls show otherwise.
    """
    obtained = [call.address for call in calls if call.action == SEGMENT_ALLOC]
    up = sum(later > earlier for earlier, later in pairwise(obtained))
    order = np.arange(count, dtype=np.uint32)
    return order if 2 * up > len(obtained) - 1 else order[::-1].copy()


def _reservations(
    segments: Sequence[Segment], calls: Sequence[SegmentCall], events: AddressedEvents
) -> NDArray[np.uint64]:
    """Where the reservation of each mapped range begins: at the lowest range of its pool."""
    mapped = defaultdict[str, list[int]](list)
    for call in calls:
        if call.action == SEGMENT_MAP:
            mapped[_segment_of(call).owner].append(call.address)
    lowest: dict[str, int] = {}
    floor = 0  # where the segments before this one end
    for segment in segments:
        key = segment.owner
        if segment.expandable and key not in lowest:
            low = segment.address
            below = (address for address in mapped[key] if floor <= address < low)
            lowest[key] = min(below, default=low)
        floor = max(floor, segment.end)
    return np.array(
        [lowest[segment.owner] if segment.expandable else 0 for segment in segments], np.uint64
    )


_CERTAIN, _LIKELY, _PARTIAL = _RUNS = "trims", "trims_or_retries", "partial_releases"
"""Kinds of runs: of empty_cache; of that or of a retry after a refusal, because memory was obtained
right afterwards; of the allocator itself."""


def trims_of(
    calls: Sequence[SegmentCall], events: AddressedEvents, start: Layout, settings: PytorchSettings
) -> tuple[list[Release], dict[str, int]]:
    """The trims among the calls to the device, in order, and how many runs of each kind there are,
    for the provenance.
    """
    judged = settings.collection_threshold > 0 or settings.max_split is not None
    held = _Held(events, start) if judged else None
    releases = list[Release]()
    runs, n = Counter[str](), 0
    while n < len(calls):
        begin = n
        while (
            n < len(calls)
            and calls[n].action in SHRINKING
            and calls[n].position == calls[begin].position
        ):
            if held:
                held.remove(calls[n].address)
            n += 1
        if n == begin:
            if held and calls[n].action == SEGMENT_ALLOC:
                held.add(calls[n].address, calls[n].size)
            n += 1
            continue
        where, run = calls[begin].position, calls[begin:n]
        ranges = any(call.action == SEGMENT_UNMAP for call in run)
        if held and not ranges and held.any_free(where):
            runs[_PARTIAL] += 1
            continue
        private = {f"{call.stream} {call.pool}": call for call in run if call.pool > 0}
        releases += sorted(Release(where, call.stream, call.pool) for call in private.values())
        if any(call.pool <= 0 for call in run):
            releases.append(Release(where))
        retried = n < len(calls) and calls[n].position == where
        runs[_LIKELY if retried else _CERTAIN] += 1
    return releases, {kind: runs[kind] for kind in _RUNS if runs[kind]}


class _Held:
    """The segments that are held, and how many blocks each has, as the events happen.

    All lists are in address order.
    """

    def __init__(self, events: AddressedEvents, start: Layout) -> None:
        self._events = events
        self._seen = 0
        self._live: list[int] = np.unique(start.block_address).tolist()
        self._begins, self._ends, self._blocks = list[int](), list[int](), list[int]()
        self._free = 0  # segments without blocks
        for address, size in zip(start.address.tolist(), start.size.tolist(), strict=True):
            self.add(address, size)

    def add(self, address: int, size: int) -> None:
        self.remove(address)
        end = address + size
        blocks = bisect_left(self._live, end) - bisect_left(self._live, address)
        n = bisect_left(self._begins, address)
        for column, value in ((self._begins, address), (self._ends, end), (self._blocks, blocks)):
            column.insert(n, value)
        self._free += not blocks

    def remove(self, address: int) -> None:
        """Remove the segment at an address, if there is one."""
        n = bisect_left(self._begins, address)
        if self._begins[n : n + 1] == [address]:
            self._free -= not self._blocks[n]
            for column in (self._begins, self._ends, self._blocks):
                del column[n]

    def any_free(self, before: int) -> bool:
        """Whether a segment has no block before an event. Successive events must not decrease."""
        new = slice(self._seen, before)
        addresses, allocs = self._events.address[new].tolist(), self._events.is_alloc[new].tolist()
        for address, is_alloc in zip(addresses, allocs, strict=True):
            self._change(address, is_alloc)
        self._seen = before
        return self._free > 0

    def _change(self, address: int, is_alloc: bool) -> None:
        place = bisect_left(self._live, address)
        if (self._live[place : place + 1] == [address]) == is_alloc:
            return
        if is_alloc:
            self._live.insert(place, address)
        else:
            del self._live[place]
        n = bisect_right(self._begins, address) - 1
        if n >= 0 and address < self._ends[n]:
            self._free -= not self._blocks[n]
            self._blocks[n] += 1 if is_alloc else -1
            self._free += not self._blocks[n]
