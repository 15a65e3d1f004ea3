# SPDX-License-Identifier: Apache-2.0
"""The segments of a memory snapshot and, by undoing its events, those held at the start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedKeyList

from allocbench.workloads.importers.pool_ids import DEFAULT_POOL, PoolId
from allocbench.workloads.pytorch_settings import MIB, SMALL_SEGMENT
from allocbench.workloads.sorting import stable_order

SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = (
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
)
GROWTH, SHRINKING = (SEGMENT_ALLOC, SEGMENT_MAP), (SEGMENT_FREE, SEGMENT_UNMAP)
ACTIONS = (*GROWTH, *SHRINKING)


class UnknownLayoutError(Exception):
    """Why the layout at the start is unknown; one line."""


class SegmentCall(NamedTuple):
    """A call to the device; `position` is the number of allocs and frees recorded before it."""

    action: str
    address: int
    size: int
    stream: int
    pool: PoolId | None
    position: int


@dataclass(frozen=True)
class Segment:
    """A segment, or a mapped range of an expandable one; small is None if unknown."""

    address: int
    size: int
    stream: int
    pool: PoolId = DEFAULT_POOL
    small: bool | None = None
    expandable: bool = False

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.size


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
            held[str(call.address)] = Segment(
                call.address,
                call.size,
                call.stream,
                call.pool or DEFAULT_POOL,
                call.size == SMALL_SEGMENT,
            )
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
        new = Segment(begin, call.size, call.stream, call.pool or DEFAULT_POOL, None, True)
        first = last = self.all.bisect_key_right(begin)
        around = self.all[max(0, first - 1) : last + 1]
        _refuse_overlaps(sorted([*around, new], key=_address))
        for near in around:
            if near.end != begin and near.address != end:
                continue
            if near.stream != new.stream or (call.pool and near.pool != new.pool):
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
                small = bool(size[inside].max() <= MIB)
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
