# SPDX-License-Identifier: Apache-2.0
"""A replay call by call, which keeps where every block was and what the device gave and got."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from allocbench import allocators
from allocbench.allocators import Allocator, OutOfMemory
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Trace
from allocbench.workloads.exporters.served import DeviceEvent, Held, Range, Served

_Segments = dict[int, int]  # address -> size


def serve(trace: Trace, allocator: str, device: str) -> Served:
    """Replay a trace through a new allocator, and leave alive what lives at its end.

    A request that fails is skipped, and so is the free of its block. Raises SpecError.
    """
    held = allocators.make_device(device)
    made = allocators.make(allocator, held)
    count = len(trace)
    address = np.zeros(count, np.uint64)
    bytes_after = np.zeros((3, count), np.uint64)
    journal = _Journal(made)
    live: dict[int, tuple[int, int]] = {}  # block -> address, event of its alloc
    columns = (trace.op, trace.block, trace.size, trace.stream)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    step = trace.step_label
    for event, (op, block, size, stream) in enumerate(rows):
        if op == ALLOC:
            try:
                address[event] = made.allocate(size, stream)
                live[block] = int(address[event]), event
            except OutOfMemory:
                pass
        elif op == FREE and block in live:
            address[event], _ = live.pop(block)
            made.deallocate(int(address[event]), stream)
        elif op == TRIM:
            made.trim()
        elif op == MARK and block == step:
            made.step()
        stats = made.stats()
        journal.see(event, int(address[event]), stats)
        bytes_after[:, event] = stats.requested, stats.allocated, stats.reserved
    allocs = dict(live.values())
    segments = [
        Range(
            one.address,
            one.size,
            [Held(b.address, b.size, b.requested, allocs.get(b.address, -1)) for b in one.blocks],
        )
        for one in made.snapshot()
    ]
    requested, allocated, reserved = bytes_after
    return Served(
        trace=trace,
        allocator=allocator,
        device=device,
        capacity=held.capacity,
        address=address,
        requested=requested,
        allocated=allocated,
        reserved=reserved,
        device_events=journal.events,
        segments=segments,
    )


class _Journal:
    """What an allocator got from its device and gave back, found by looking at its segments.

    They are looked at only when the device was called; and not when an allocator that keeps no
    free blocks called once, for memory that is the block of the event and no more.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.events: list[DeviceEvent] = []
        self._allocator = allocator
        self._looks_simple = not allocator.info.keeps_free_blocks
        self._calls = self._allocated = self._reserved = 0
        self._segments: _Segments = {}

    def see(self, event: int, address: int, stats: allocators.Stats) -> None:
        """Note what changed during an event, which concerned the block at `address`."""
        calls = self._allocator.device.stats().calls - self._calls
        grown = stats.reserved - self._reserved
        is_block = self._looks_simple and calls == 1 and stats.allocated - self._allocated == grown
        self._calls += calls
        self._allocated, self._reserved = stats.allocated, stats.reserved
        if is_block and grown > 0:
            self._segments[address] = grown
            self.events.append(DeviceEvent(event, "segment_alloc", address, grown))
        elif is_block and self._segments.get(address) == -grown:
            del self._segments[address]
            self.events.append(DeviceEvent(event, "segment_free", address, -grown))
        elif calls:
            now = {one.address: one.size for one in self._allocator.snapshot()}
            for action, where, size in changes(self._segments, now):
                self.events.append(DeviceEvent(event, action, where, size))
            self._segments = now


def changes(before: _Segments, now: _Segments) -> Iterator[tuple[str, int, int]]:
    """What went back to the device, then what came from it: action, address, size.

    Whole segments come and go; parts of segments that were there, or still are, do so as mapped
    and unmapped.
    """
    for whole, part, old, new in (
        ("segment_free", "segment_unmap", before, now),
        ("segment_alloc", "segment_map", now, before),
    ):
        others = sorted(new)
        for address, size in old.items():
            if new.get(address) != size:
                for begin, end in _without(address, address + size, new, others):
                    is_whole = (begin, end) == (address, address + size)
                    yield whole if is_whole else part, begin, end - begin


def _without(
    begin: int, end: int, segments: _Segments, order: list[int]
) -> Iterator[tuple[int, int]]:
    """The parts of a range that none of the segments has; `order`: their addresses, sorted."""
    for address in order[max(bisect_right(order, begin) - 1, 0) :]:
        if address >= end:
            break
        if address > begin:
            yield begin, address
        begin = max(begin, address + segments[address])
    if begin < end:
        yield begin, end
