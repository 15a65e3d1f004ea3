# SPDX-License-Identifier: Apache-2.0
"""What a snapshot shows, in the shape that tests compare."""

from __future__ import annotations

from allocbench.allocators import Allocator


def segments(allocator: Allocator) -> list[int]:
    """Bytes of each segment."""
    return [segment.size for segment in allocator.snapshot()]


def blocks(allocator: Allocator) -> list[list[int]]:
    """For each segment the bytes of its blocks; those of a free one are negative."""
    return [
        [block.size if block.allocated else -block.size for block in segment.blocks]
        for segment in allocator.snapshot()
    ]


def place(allocator: Allocator, address: int) -> tuple[int, int]:
    """Which of the segments held an address lies in, from 0, and its offset there."""
    for at, segment in enumerate(allocator.snapshot()):
        if segment.address <= address < segment.address + segment.size:
            return at, address - segment.address
    raise AssertionError(f"{address} lies in no segment")


def granted(allocator: Allocator, address: int) -> int:
    """Bytes of the allocated block at an address."""
    at, _ = place(allocator, address)
    (size,) = (b.size for b in allocator.snapshot()[at].blocks if b.address == address)
    return size
