# SPDX-License-Identifier: Apache-2.0
"""Where a recorded program trimmed: runs of calls that give segments back to the device.

`empty_cache` gives every segment back that is wholly free. So does a request that the device has
refused, before it asks again; a trim there has the same effect. A run that leaves free segments
behind was made by the allocator itself, for a garbage_collection_threshold or max_split_size.
Segments of a private pool go back once nothing uses the pool any more: that releases the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from allocbench.workloads.importers.addresses import Events
from allocbench.workloads.importers.snapshot_segments import (
    DEFAULT_POOL,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_UNMAP,
    Pool,
    SegmentEvent,
)
from allocbench.workloads.importers.snapshot_settings import Settings
from allocbench.workloads.layout import Layout


class Trims(NamedTuple):
    """Before which event each trim happened and of which pool, and how many runs were what."""

    at: list[tuple[int, int]]
    certain: int  # empty_cache
    likely: int  # empty_cache, or a retry after a refusal: memory was obtained right afterwards
    partial: int  # left to the allocator

    def told(self) -> dict[str, int]:
        """What is not 0, for the provenance."""
        names = {
            "trims": self.certain,
            "trims_or_retries": self.likely,
            "partial_releases": self.partial,
        }
        return {name: count for name, count in names.items() if count}


def trims_of(
    calls: Sequence[SegmentEvent],
    events: Events,
    start: Layout | None,
    settings: Settings,
    number: Mapping[tuple[int, Pool], int],
) -> Trims:
    """The trims among the calls to the device, in order.

    number: what stands for a stream and a private pool in the events.
    """
    held = (
        {} if start is None else dict(zip(start.address.tolist(), start.size.tolist(), strict=True))
    )
    judged = settings.collects or settings.max_split is not None
    lives = _Lives(events, start) if judged and start is not None else None
    at: list[tuple[int, int]] = []
    certain = likely = partial = n = 0
    while n < len(calls):
        begin = n
        while (
            n < len(calls)
            and calls[n].action in (SEGMENT_FREE, SEGMENT_UNMAP)
            and calls[n].at == calls[begin].at
        ):
            held.pop(calls[n].address, None)
            n += 1
        if n == begin:
            if calls[n].action == SEGMENT_ALLOC:
                held[calls[n].address] = calls[n].size
            n += 1
            continue
        where = calls[begin].at
        ranges = any(call.action == SEGMENT_UNMAP for call in calls[begin:n])
        if lives and not ranges and lives.any_free(held, where):
            partial += 1
            continue
        run = calls[begin:n]
        released = {(call.stream, call.pool) for call in run if _is_private(call)}
        at += [(where, number[stream, pool or DEFAULT_POOL]) for stream, pool in sorted(released)]
        if not all(_is_private(call) for call in run):
            at.append((where, 0))
        if n < len(calls) and calls[n].at == where:
            likely += 1
        else:
            certain += 1
    return Trims(at, certain, likely, partial)


def _is_private(call: SegmentEvent) -> bool:
    return (call.pool or DEFAULT_POOL) != DEFAULT_POOL


class _Lives:
    """Which addresses hold a block before an event."""

    def __init__(self, events: Events, start: Layout) -> None:
        order = np.argsort(events.address, kind="stable")
        self._address, self._order = events.address[order], order
        self._is_alloc = events.is_alloc
        self._start = start.block_address

    def any_free(self, held: dict[int, int], before: int) -> bool:
        """Whether a segment of `held` (bytes by address) has no block before an event."""
        happened = self._order < before
        address, order = self._address[happened], self._order[happened]
        last = np.append(address[1:] != address[:-1], True)[: len(address)]
        live = address[last][self._is_alloc[order[last]]]
        untouched = self._start[~np.isin(self._start, address)]
        live = np.sort(np.concatenate([live, untouched]))
        begins = np.array(list(held), np.uint64)
        ends = begins + np.array(list(held.values()), np.uint64)
        return bool(np.any(np.searchsorted(live, begins) == np.searchsorted(live, ends)))
