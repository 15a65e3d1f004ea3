# SPDX-License-Identifier: Apache-2.0
"""The contents of a snapshot, in the form that tests compare."""

from allocbench.allocators import Allocator, OutOfMemory


def segments(allocator: Allocator) -> list[int]:
    """Bytes of each segment."""
    return [segment.size for segment in allocator.snapshot()]


def blocks(allocator: Allocator) -> list[list[int]]:
    """For each segment, the bytes of its blocks; negative for free blocks."""
    return [
        [block.size if block.allocated else -block.size for block in segment.blocks]
        for segment in allocator.snapshot()
    ]


def place(allocator: Allocator, address: int) -> tuple[int, int]:
    """The index of the segment that contains an address, and the offset of the address in it."""
    for position, segment in enumerate(allocator.snapshot()):
        if segment.address <= address < segment.address + segment.size:
            return position, address - segment.address
    raise AssertionError(f"{address} is not in any segment")


def granted(allocator: Allocator, address: int) -> int:
    """Size of the allocated block at an address, in bytes."""
    position, _ = place(allocator, address)
    (size,) = (b.size for b in allocator.snapshot()[position].blocks if b.address == address)
    return size


def fails(allocator: Allocator, size: int) -> bool:
    """Whether a request of so many bytes fails."""
    try:
        allocator.allocate(size)
    except OutOfMemory:
        return True
    return False
