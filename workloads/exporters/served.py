# SPDX-License-Identifier: Apache-2.0
"""A trace as an allocator has served it: where every block was, and what was held for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import ALLOC, FREE, Trace


class Held(NamedTuple):
    """A block of a segment at the end. Sizes in bytes; `requested` is 0 in a free block.

    `event` is its alloc's place in the trace, or -1 for a free block.
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
    """Memory that came from the device or went back to it, during event `event` of the trace.

    action: "segment_alloc" or "segment_free" for a segment, "segment_map" or "segment_unmap" for
    a part of one.
    """

    event: int
    action: str
    address: int
    size: int


@dataclass(frozen=True, eq=False)
class Served:
    """A trace of n events after its replay.

    allocator, device: their specs. capacity: of the device, bytes.
    address: uint64 (n,), of the block of each alloc and free; 0 where a request failed, and for
        other events.
    requested, allocated, reserved: uint64 (n,), bytes after each event.
    device_events: in order. segments: at the end, in order of address.
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
        """The allocs that failed."""
        found: NDArray[np.bool_] = (self.trace.op == ALLOC) & (self.address == 0)
        return found

    @property
    def time_us(self) -> NDArray[np.float64]:
        """When each event happened; without times in the trace, one microsecond after another."""
        if self.trace.time_ns is None:
            return np.arange(len(self.trace), dtype=np.float64)
        return self.trace.time_ns / 1000

    def sizes(self) -> NDArray[np.uint64]:
        """Requested bytes of the block of each alloc and free, 0 for other events."""
        found = np.zeros(len(self.trace), np.uint64)
        live: dict[int, int] = {}
        rows = zip(
            self.trace.op.tolist(), self.trace.block.tolist(), self.trace.size.tolist(), strict=True
        )
        for event, (op, block, size) in enumerate(rows):
            if op == ALLOC:
                live[block] = size
            if op in (ALLOC, FREE):
                found[event] = live[block]
        return found
