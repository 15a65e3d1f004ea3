# SPDX-License-Identifier: Apache-2.0
"""A trace as served by an allocator: the address of every block, and the memory reserved for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import ALLOC, FREE, Trace


class Held(NamedTuple):
    """A block of a segment at the end. Sizes in bytes; `requested` is 0 in a free block.

    `event` is the index of its alloc in the trace, or -1 for a free block.
    """

    address: int
    size: int
    requested: int
    event: int


class Range(NamedTuple):
    """A segment at the end, tiled by its blocks."""

    address: int
    size: int
    blocks: Sequence[Held]


class DeviceEvent(NamedTuple):
    """Memory obtained from or returned to the device during event `event` of the trace.

    action: "segment_alloc" or "segment_free" for a segment, "segment_map" or "segment_unmap" for
    part of one.
    """

    event: int
    action: str
    address: int
    size: int


@dataclass(frozen=True, eq=False)
class Served:
    """A trace of n events after a replay.

    allocator, device: their specs. capacity: bytes of the device.
    address: uint64 (n,), address of the block of each alloc and free; 0 for a failed request and
        for other events.
    requested, allocated, reserved: uint64 (n,), bytes after each event.
    device_events: in order. segments: at the end, in address order.
    """

    trace: Trace
    allocator: str
    device: str
    capacity: int
    address: NDArray[np.uint64]
    requested: NDArray[np.uint64]
    allocated: NDArray[np.uint64]
    reserved: NDArray[np.uint64]
    device_events: Sequence[DeviceEvent]
    segments: Sequence[Range]

    @property
    def failed(self) -> NDArray[np.bool_]:
        """bool (n,), True for the allocs that failed."""
        failed: NDArray[np.bool_] = (self.trace.op == ALLOC) & (self.address == 0)
        return failed

    @property
    def time_us(self) -> NDArray[np.float64]:
        """Time of each event; one microsecond per event if the trace has no times."""
        if self.trace.time_ns is None:
            return np.arange(len(self.trace), dtype=np.float64)
        return self.trace.time_ns / 1000

    def sizes(self) -> NDArray[np.uint64]:
        """Requested bytes of the block of each alloc and free, 0 for other events."""
        sizes = np.zeros(len(self.trace), np.uint64)
        live: dict[int, int] = {}
        rows = zip(
            self.trace.op.tolist(), self.trace.block.tolist(), self.trace.size.tolist(), strict=True
        )
        for event, (op, block, size) in enumerate(rows):
            if op == ALLOC:
                live[block] = size
            if op in (ALLOC, FREE):
                sizes[event] = live[block]
        return sizes
