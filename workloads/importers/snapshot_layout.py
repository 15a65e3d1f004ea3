# SPDX-License-Identifier: Apache-2.0
"""Where the blocks were when the recording of a memory snapshot began.

The event of a free contains the requested bytes, not the size of the block. The size follows from
PyTorch's rules: the rest of a split block becomes a free block if it has at least 512 bytes in a
segment of small blocks or in an expandable segment, or more than 1 MiB in any other segment. So a
segment of large blocks has no block below 1 MiB, and a smaller gap belongs to the block before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import AddressedEvents, Blocks
from allocbench.workloads.importers.pool_ids import DEFAULT_POOL, PoolId
from allocbench.workloads.importers.snapshot_segments import (
    SEGMENT_ALLOC,
    SEGMENT_MAP,
    Segment,
    SegmentCall,
    UnknownLayoutError,
)
from allocbench.workloads.layout import Layout
from allocbench.workloads.pytorch_settings import MIB, SMALL_SEGMENT, Settings
from allocbench.workloads.sorting import stable_order


def layout_of(
    segments: Sequence[Segment],
    calls: Sequence[SegmentCall],
    settings: Settings,
    events: AddressedEvents,
    initial: Blocks,
    stream: dict[tuple[int, PoolId], int],
) -> Layout:
    """The layout at the start.

    segments: those held at the start, in address order. calls: later calls to the device. stream:
    the number that represents a stream and a pool in the events. Raises UnknownLayoutError if
    blocks and segments contradict each other.
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
        stream=np.array([stream[segment.stream, segment.pool] for segment in segments], np.int64),
        small=np.array([bool(segment.small) for segment in segments], np.bool_),
        reservation=_reservations(segments, calls, events),
        rank=_ranks(len(segments), calls),
        block_address=initial.address,
        block_size=size,
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
    address: int, requested: int, segment: Segment, limit: int, settings: Settings, allocs: _Allocs
) -> int:
    """Size in bytes of the block of a request; the block ends no later than `limit`."""
    rounded = settings.rounded(requested)
    if segment.small or segment.expandable:
        return rounded
    if settings.max_split is not None and rounded >= settings.max_split:
        return segment.end - address  # such a block is never split
    least = address + rounded
    limit = min(limit, allocs.next_above(address, least, least + MIB + 1) or limit)
    return rounded if limit - least > MIB else limit - address


def _ranks(count: int, calls: Sequence[SegmentCall]) -> NDArray[np.uint32]:
    """The order in which segments were obtained: by address, ascending or descending as in `calls`.

    Snapshots do not contain it. The order is descending unless the calls show otherwise.
    """
    obtained = [call.address for call in calls if call.action == SEGMENT_ALLOC]
    up = sum(later > earlier for earlier, later in pairwise(obtained))
    order = np.arange(count, dtype=np.uint32)
    return order if 2 * up > len(obtained) - 1 else order[::-1].copy()


def _mapped(call: SegmentCall) -> Segment:
    """What a call mapped: one page of 2 MiB for small blocks, otherwise larger ones."""
    small = call.size == SMALL_SEGMENT
    return Segment(call.address, call.size, call.stream, call.pool or DEFAULT_POOL, small, True)


def _reservations(
    segments: Sequence[Segment], calls: Sequence[SegmentCall], events: AddressedEvents
) -> NDArray[np.uint64]:
    """Where the reservation of each mapped range begins: at the lowest range of its pool."""
    mapped = defaultdict[tuple[int, PoolId, bool | None], list[int]](list)
    for segment in (_mapped(call) for call in calls if call.action == SEGMENT_MAP):
        mapped[segment.stream, segment.pool, segment.small].append(segment.address)
    lowest: dict[tuple[int, PoolId, bool | None], int] = {}
    floor = 0  # where the segments before this one end
    for segment in segments:
        key = segment.stream, segment.pool, segment.small
        if segment.expandable and key not in lowest:
            low = segment.address
            below = (address for address in mapped[key] if floor <= address < low)
            lowest[key] = min(below, default=low)
        floor = max(floor, segment.end)
    return np.array(
        [
            lowest[segment.stream, segment.pool, segment.small] if segment.expandable else 0
            for segment in segments
        ],
        np.uint64,
    )
