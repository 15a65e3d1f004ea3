# SPDX-License-Identifier: Apache-2.0
"""A trace after a replay: the address of every block, and the memory reserved for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import ALLOC, Trace, spans


class ReplayedBlock(NamedTuple):
    """A block of a segment at the end. Sizes in bytes; `requested` is 0 in a free block.

    `event` is the index of its alloc in the trace, or -1 for a free block.
    """

    address: int
    size: int
    requested: int
    event: int


class ReplayedSegment(NamedTuple):
    """A segment at the end, tiled by its blocks.

    stream, small, pool: of one that was held from the start, else None. expandable: whether it
    is a range of pages.
    """

    address: int
    size: int
    blocks: Sequence[ReplayedBlock]
    stream: int | None = None
    small: bool | None = None
    pool: int | None = None
    expandable: bool = False


class DeviceCall(NamedTuple):
    """Memory obtained from or returned to the device during event `event` of the trace.

    action: "segment_alloc" or "segment_free" for a segment, "segment_map" or "segment_unmap" for
    pages.
    """

    event: int
    action: str
    address: int
    size: int


@dataclass(frozen=True, eq=False)
class ReplayedTrace:
    """A trace of n events after a replay.

    allocator, device: their specs. capacity: bytes of the device.
    address: uint64 (n,), address of the block of each alloc and free; 0 for a failed request and
        for other events.
    requested, allocated, reserved: uint64 (n,), bytes after each event.
    device_calls: in order. segments: at the end, in address order.
    taken_over: how many events, the first ones, allocate blocks that the allocator took over with
        the segments around them; it is 0 if it began with an empty device.
    options: those of `caching`, or None if another allocator was replayed.
    """

    trace: Trace
    allocator: str
    device: str
    capacity: int
    address: NDArray[np.uint64]
    requested: NDArray[np.uint64]
    allocated: NDArray[np.uint64]
    reserved: NDArray[np.uint64]
    device_calls: Sequence[DeviceCall]
    segments: Sequence[ReplayedSegment]
    taken_over: int = 0
    options: Mapping[str, str] | None = None

    @property
    def failed(self) -> NDArray[np.bool_]:
        """bool (n,), True for the allocs that failed."""
        failed: NDArray[np.bool_] = (self.trace.op == ALLOC) & (self.address == 0)
        return failed

    @cached_property
    def time_us(self) -> NDArray[np.float64]:
        """Time of each event; one microsecond per event if the trace has no times."""
        if self.trace.time_ns is None:
            return np.arange(len(self.trace), dtype=np.float64)
        return self.trace.time_ns / 1000

    def pools(self) -> NDArray[np.uint16] | None:
        """uint16 (n,), private pool of each event, of a free that of its block; None: no pool."""
        return None if self.trace.pool is None else self._of_blocks(self.trace.pool)

    def sizes(self) -> NDArray[np.uint64]:
        """Requested bytes of the block of each alloc and free, 0 for other events."""
        return self._of_blocks(self.trace.size)

    def _of_blocks(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column with the values of allocs at their frees, too."""
        allocs, ends = spans(self.trace.op, self.trace.block)
        freed = ends < len(self.trace)
        column = column.copy()
        column[ends[freed]] = column[allocs[freed]]
        return column
