# SPDX-License-Identifier: Apache-2.0
"""The judge: finds the rules that an allocator breaks, slowly and from the outside only.

It keeps its own record of requests and blocks and compares every pair of blocks. It shares no code
with the allocators and sees only what any caller can see.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from allocbench import allocators


class Rule(StrEnum):
    NOT_NULL = "a block with bytes has an address other than 0"
    ALIGNED = "an address is a multiple of the alignment"
    LARGE_ENOUGH = "a block is at least as large as its request"
    APART = "live blocks do not overlap"
    INSIDE = "a live block is inside one segment"
    SEGMENTS_APART = "segments do not overlap"
    TILED = "the blocks of a segment follow one another from its begin to its end"
    LIVE_SHOWN = "the snapshot's allocated blocks are the live ones, with their requests"
    REQUESTED = "requested bytes are the sum over the live blocks"
    ALLOCATED = "allocated bytes are the sum over the snapshot's allocated blocks"
    RESERVED = "reserved bytes are the sum over the segments"
    ORDERED = "requested <= allocated <= reserved <= capacity"
    PEAKS = "a peak is the highest value so far"
    COUNTS = "served, freed and refused requests are counted"
    LARGEST_FREE = "the largest free block is the largest of the snapshot"


class Block(Protocol):
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def requested(self) -> int: ...


class Segment(Protocol):
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def blocks(self) -> Sequence[Block]: ...


class Stats(Protocol):
    @property
    def requested(self) -> int: ...
    @property
    def allocated(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def peak_requested(self) -> int: ...
    @property
    def peak_allocated(self) -> int: ...
    @property
    def peak_reserved(self) -> int: ...
    @property
    def allocations(self) -> int: ...
    @property
    def frees(self) -> int: ...
    @property
    def failures(self) -> int: ...


@dataclass(frozen=True)
class Live:
    """A block handed out; `size` is the requested size until the allocated size is known."""

    address: int
    requested: int
    size: int

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass
class Judge:
    """The record of one allocator. Capacity and alignment are in bytes."""

    capacity: int
    alignment: int = 256
    from_driver_pool: bool = (
        False  # from the device's own pool: snapshots show only live blocks as segments
    )
    live: dict[int, Live] = field(default_factory=dict)
    allocations: int = 0
    frees: int = 0
    failures: int = 0
    peaks: list[int] = field(default_factory=lambda: [0, 0, 0])

    def alloc(self, block: int, requested: int, address: int, size: int | None = None) -> None:
        assert block not in self.live, "the test requests a block that is still live"
        self.live[block] = Live(address, requested, requested if size is None else size)
        self.allocations += 1

    def free(self, block: int) -> None:
        del self.live[block]
        self.frees += 1

    def fail(self) -> None:
        self.failures += 1

    def blocks_broken(self) -> list[Rule]:
        """The rules about live blocks that need no snapshot."""
        live = list(self.live.values())
        broken = []
        if any(block.address == 0 for block in live):
            broken.append(Rule.NOT_NULL)
        if any(block.address % self.alignment for block in live):
            broken.append(Rule.ALIGNED)
        if any(block.size < block.requested for block in live):
            broken.append(Rule.LARGE_ENOUGH)
        if _overlap([(block.address, block.end) for block in live]):
            broken.append(Rule.APART)
        return broken

    def broken(self, segments: Sequence[Segment], stats: Stats, largest_free: int) -> list[Rule]:
        """The rules broken after the events so far; empty if none."""
        shown = [block for segment in segments for block in segment.blocks]
        shown_bytes = sum(segment.size for segment in segments)
        allocated = [block for block in shown if block.requested]
        free = [block.size for block in shown if not block.requested]
        now = (stats.requested, stats.allocated, stats.reserved)
        self.peaks = [max(peak, value) for peak, value in zip(self.peaks, now, strict=True)]
        kept = {
            Rule.INSIDE: all(
                any(s.address <= b.address and b.end <= s.address + s.size for s in segments)
                for b in self.live.values()
            ),
            Rule.SEGMENTS_APART: not _overlap([(s.address, s.address + s.size) for s in segments]),
            Rule.TILED: all(_tiled(segment) for segment in segments),
            Rule.LARGE_ENOUGH: all(block.requested <= block.size for block in shown),
            Rule.LIVE_SHOWN: sorted((b.address, b.requested) for b in allocated)
            == sorted((b.address, b.requested) for b in self.live.values()),
            Rule.REQUESTED: stats.requested == sum(b.requested for b in self.live.values()),
            Rule.ALLOCATED: stats.allocated == sum(b.size for b in allocated),
            Rule.RESERVED: stats.reserved == shown_bytes
            or (self.from_driver_pool and stats.reserved > shown_bytes),
            Rule.ORDERED: 0 <= now[0] <= now[1] <= now[2] <= self.capacity,
            # Reserved bytes can exceed a peak within a request: memory is obtained, then returned.
            Rule.PEAKS: [stats.peak_requested, stats.peak_allocated] == self.peaks[:2]
            and self.peaks[2] <= stats.peak_reserved <= self.capacity,
            Rule.COUNTS: (stats.allocations, stats.frees, stats.failures)
            == (self.allocations, self.frees, self.failures),
            Rule.LARGEST_FREE: largest_free == max(free, default=0),
        }
        return self.blocks_broken() + [rule for rule, is_kept in kept.items() if not is_kept]


def _overlap(ranges: Iterable[tuple[int, int]]) -> bool:
    ranges = list(ranges)
    return any(
        begin < other_end and other_begin < end
        for address, (begin, end) in enumerate(ranges)
        for other_begin, other_end in ranges[:address]
    )


def _tiled(segment: Segment) -> bool:
    address = segment.address
    for block in segment.blocks:
        if block.address != address or block.size <= 0:
            return False
        address += block.size
    return address == segment.address + segment.size


class Watched:
    """An allocator whose every call is checked; blocks are named by request order.

    Each call raises AssertionError with the broken rules, and what `check` raises.
    """

    def __init__(self, allocator: allocators.Allocator, alignment: int = 256) -> None:
        self.allocator = allocator
        from_driver_pool = allocator.info.from_driver_pool
        self.judge = Judge(allocator.device.capacity, alignment, from_driver_pool)
        self.asked = 0
        self._pools: dict[int, int] = {}  # of the blocks of private pools

    @property
    def live(self) -> list[int]:
        """The live blocks in request order."""
        return list(self.judge.live)

    def allocate(self, size: int, stream: int = 0, pool: int = 0) -> int | None:
        """The block's name, or None if the request of at least 1 byte failed."""
        block, self.asked = self.asked, self.asked + 1
        try:
            address = self.allocator.allocate(size, stream, pool)
        except allocators.OutOfMemory:
            self.judge.fail()
            self.verify()
            return None
        self.judge.alloc(block, size, address)
        if pool:
            self._pools[block] = pool
        self.verify()
        return block

    def address(self, block: int) -> int:
        return self.judge.live[block].address

    def free(self, block: int, stream: int = 0) -> int:
        """Frees the block; returns its former address."""
        address = self.address(block)
        self.allocator.deallocate(address, stream, self._pools.pop(block, 0))
        self.judge.free(block)
        self.verify()
        return address

    def free_all(self) -> None:
        for block in self.live:
            self.free(block)

    def trim(self, pool: int = 0) -> None:
        self.allocator.trim(pool)
        self.verify()

    def step(self) -> None:
        self.allocator.step()
        self.verify()

    def verify(self) -> None:
        allocator = self.allocator
        stats = allocator.stats()
        broken = self.judge.broken(allocator.snapshot(), stats, allocator.largest_free())
        assert not broken, "; ".join(broken)
        assert stats.reserved == allocator.device.reserved, "the device lends what is reserved"
        allocator.check()
