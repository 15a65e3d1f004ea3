# SPDX-License-Identifier: Apache-2.0
"""bump: memory is handed out once, so it is a lower bound for times and not a candidate."""

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import place, segments
from tests.conftest import MIB, Make


def test_it_is_never_recommended() -> None:
    assert not allocators.info("bump").candidate


def test_a_freed_block_is_never_reused(make: Make) -> None:
    allocator = make("bump")
    last = 0
    for size in (1, 256, 257, 1000) * 25:
        address = allocator.allocate(size)
        assert address > last
        last = address
        allocator.deallocate(address)
    assert place(allocator, last) == (0, 25 * (256 + 256 + 512 + 1024) - 1024)


def test_a_used_up_segment_is_followed_by_another(make: Make) -> None:
    allocator = make("bump:segment=1MiB")
    for size in (MIB - 256, 512, 3 * MIB, 256):
        allocator.allocate(size)
    assert segments(allocator) == [MIB, MIB, 3 * MIB, MIB]


def test_a_request_fails_once_all_memory_has_been_handed_out(make: Make) -> None:
    allocator = make("bump", "1MiB")
    for _ in range(4):
        allocator.deallocate(allocator.allocate(MIB // 4))
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(1)
    allocator.trim()
    assert segments(allocator) == []
    allocator.allocate(MIB)


def test_a_segment_with_a_live_block_is_not_trimmed(make: Make) -> None:
    allocator = make("bump:segment=1MiB")
    first = allocator.allocate(MIB)
    second = allocator.allocate(1)
    allocator.deallocate(first)
    allocator.trim()
    assert segments(allocator) == [MIB]
    assert place(allocator, second) == (0, 0)
