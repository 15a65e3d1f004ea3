# SPDX-License-Identifier: Apache-2.0
"""Where a recorded program trimmed: runs of calls that return segments to the device.

`empty_cache` returns every segment that is wholly free. So does a request that the device refused,
before it retries; a trim there has the same effect. A run that leaves free segments was made by the
allocator itself, for a garbage_collection_threshold or max_split_size. Segments of a private pool
are returned once nothing uses the pool any more, which releases the pool.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from allocbench.workloads.importers.addresses import AddressedEvents
from allocbench.workloads.importers.pool_ids import DEFAULT_POOL, PoolId
from allocbench.workloads.importers.snapshot_segments import (
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_UNMAP,
    SegmentCall,
)
from allocbench.workloads.layout import Layout
from allocbench.workloads.pytorch_settings import Settings


class Trims(NamedTuple):
    """The event before which each trim happened, its pool, and the number of runs of each kind."""

    at: list[tuple[int, int]]
    certain: int  # empty_cache
    likely: int  # empty_cache, or a retry after a refusal: memory was obtained right afterwards
    partial: int  # left to the allocator

    def told(self) -> dict[str, int]:
        """The counts above 0, for the provenance."""
        names = {
            "trims": self.certain,
            "trims_or_retries": self.likely,
            "partial_releases": self.partial,
        }
        return {name: count for name, count in names.items() if count}


def trims_of(
    calls: Sequence[SegmentCall],
    events: AddressedEvents,
    start: Layout | None,
    settings: Settings,
    number: Mapping[tuple[int, PoolId], int],
) -> Trims:
    """The trims among the calls to the device, in order.

    number: represents a stream and a private pool in the events.
    """
    judged = settings.collects or settings.max_split is not None
    held = _Held(events, start) if judged and start is not None else None
    trims: list[tuple[int, int]] = []
    certain = likely = partial = n = 0
    while n < len(calls):
        begin = n
        while (
            n < len(calls)
            and calls[n].action in (SEGMENT_FREE, SEGMENT_UNMAP)
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
        where = calls[begin].position
        ranges = any(call.action == SEGMENT_UNMAP for call in calls[begin:n])
        if held and not ranges and held.any_free(where):
            partial += 1
            continue
        run = calls[begin:n]
        released = {(call.stream, call.pool) for call in run if _is_private(call)}
        trims += [
            (where, number[stream, pool or DEFAULT_POOL]) for stream, pool in sorted(released)
        ]
        if not all(_is_private(call) for call in run):
            trims.append((where, 0))
        if n < len(calls) and calls[n].position == where:
            likely += 1
        else:
            certain += 1
    return Trims(trims, certain, likely, partial)


def _is_private(call: SegmentCall) -> bool:
    return (call.pool or DEFAULT_POOL) != DEFAULT_POOL


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
