# SPDX-License-Identifier: Apache-2.0
"""The segments of a memory snapshot and, by undoing its events, those held at the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import PoolId
from allocbench.workloads.importers.snapshot_settings import MIB, SMALL_SEGMENT
from allocbench.workloads.sorting import stable_order

SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = (
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
)
ACTIONS = (SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)
DEFAULT_POOL: PoolId = (0, 0)


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
    held = {segment.address: segment for segment in final}
    if len(held) < len(final):
        raise UnknownLayoutError("two of its segments have the same address")
    ranges = _Ranges([segment for segment in final if segment.expandable])
    for segment in final:
        if segment.expandable:
            del held[segment.address]
    for call in reversed(calls):
        if call.action == SEGMENT_ALLOC:
            obtained = held.pop(call.address, None)
            if obtained is None or obtained.size != call.size:
                raise UnknownLayoutError(
                    f"a segment of {call.size} bytes was obtained at {call.address:#x}, "
                    "which is neither freed later nor held at the end"
                )
        elif call.action == SEGMENT_FREE:
            if call.address in held:
                raise UnknownLayoutError(f"the segment at {call.address:#x} was freed twice")
            held[call.address] = Segment(
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
    ordered = sorted([*held.values(), *ranges.all], key=lambda segment: segment.address)
    for segment, following in pairwise(ordered):
        if segment.end > following.address:
            raise UnknownLayoutError(
                f"the segments at {segment.address:#x} and {following.address:#x} overlap"
            )
    return ordered


class _Ranges:
    """Mapped ranges of expandable segments; adjacent ranges of a pool are merged."""

    def __init__(self, ranges: Sequence[Segment]) -> None:
        self.all = list(ranges)

    def remove(self, call: SegmentCall) -> None:
        begin, end = call.address, call.address + call.size
        for n, segment in enumerate(self.all):
            if segment.address <= begin and end <= segment.end:
                pieces = [(segment.address, begin), (end, segment.end)]
                self.all[n : n + 1] = [
                    replace(segment, address=low, size=high - low)
                    for low, high in pieces
                    if low < high
                ]
                return
        raise UnknownLayoutError(
            f"{call.size} bytes were mapped at {begin:#x}, which are neither unmapped later nor "
            "held at the end"
        )

    def add(self, call: SegmentCall) -> None:
        begin, end = call.address, call.address + call.size
        new = Segment(begin, call.size, call.stream, call.pool or DEFAULT_POOL, None, True)
        neighbors = [near for near in self.all if near.end == begin or near.address == end]
        for near in neighbors:
            if near.stream != new.stream or (call.pool and near.pool != new.pool):
                continue
            self.all.remove(near)
            begin, end = min(begin, near.address), max(end, near.end)
            new = replace(new, pool=near.pool, small=near.small)
        self.all.append(replace(new, address=begin, size=end - begin))


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
    unmaps = [call for call in calls if call.action == SEGMENT_UNMAP]
    begin = np.array([call.address for call in unmaps], np.uint64)
    end = np.array([call.address + call.size for call in unmaps], np.uint64)
    position = np.array([call.position for call in unmaps], np.int64)
    with_small = []
    for segment in segments:
        if segment.small is None:
            until = position[(begin < segment.end) & (end > segment.address)].min(
                initial=len(address)
            )
            limits = np.array([segment.address, segment.end], np.uint64)
            low, high = np.searchsorted(sorted_address, limits)
            inside = order[low:high]
            inside = inside[inside < until]
            small = segment.size % large_page != 0
            if len(inside):
                small = bool(size[inside].max() <= MIB)
            segment = replace(segment, small=small)
        with_small.append(segment)
    return with_small
