# SPDX-License-Identifier: Apache-2.0
"""Where a recorded program trimmed: runs of calls that return segments to the device.

`empty_cache` returns every segment that is wholly free. So does a request that the device refused,
before it retries; a trim there has the same effect. A run that leaves free segments was made by the
allocator itself, for a garbage_collection_threshold or max_split_size. Segments of a private pool
are returned once nothing uses the pool any more, which releases the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from allocbench.workloads.importers.addresses import AddressedEvents, PoolId
from allocbench.workloads.importers.snapshot_segments import (
    DEFAULT_POOL,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_UNMAP,
    SegmentCall,
)
from allocbench.workloads.importers.snapshot_settings import Settings
from allocbench.workloads.layout import Layout


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
    held = (
        {} if start is None else dict(zip(start.address.tolist(), start.size.tolist(), strict=True))
    )
    judged = settings.collects or settings.max_split is not None
    lives = _Lives(events, start) if judged and start is not None else None
    trims: list[tuple[int, int]] = []
    certain = likely = partial = n = 0
    while n < len(calls):
        begin = n
        while (
            n < len(calls)
            and calls[n].action in (SEGMENT_FREE, SEGMENT_UNMAP)
            and calls[n].position == calls[begin].position
        ):
            held.pop(calls[n].address, None)
            n += 1
        if n == begin:
            if calls[n].action == SEGMENT_ALLOC:
                held[calls[n].address] = calls[n].size
            n += 1
            continue
        where = calls[begin].position
        ranges = any(call.action == SEGMENT_UNMAP for call in calls[begin:n])
        if lives and not ranges and lives.any_free(held, where):
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


class _Lives:
    """Which addresses hold a block after an event; events must be asked in order."""

    def __init__(self, events: AddressedEvents, start: Layout) -> None:
        self._events = events
        self._seen = 0
        self._live = start.block_address

    def any_free(self, held: dict[int, int], before: int) -> bool:
        """Whether a segment of `held` (bytes by address) has no block before an event.

        The events of successive calls must not decrease.
        """
        new = slice(self._seen, before)
        changed, last = np.unique(self._events.address[new][::-1], return_index=True)
        is_live = self._events.is_alloc[new][::-1][last]
        others = np.setdiff1d(self._live, changed, assume_unique=True)
        self._live = np.sort(np.concatenate([others, changed[is_live]]))
        self._seen = before
        begins = np.array(list(held), np.uint64)
        ends = begins + np.array(list(held.values()), np.uint64)
        counts = np.searchsorted(self._live, ends) - np.searchsorted(self._live, begins)
        return bool(np.any(counts == 0))
