# SPDX-License-Identifier: Apache-2.0
"""free_lists: slices are carved from buffers and reused only for their own size."""

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks, granted, place, segments
from tests.conftest import GIB, MIB, Make


@pytest.mark.parametrize(
    ("options", "size", "rounded"),
    [("", 1, 1024), ("", 1024, 1024), ("", 1025, 2048), (":round=4096", 1, 4096)],
)
def test_sizes_are_rounded_up(make: Make, options: str, size: int, rounded: int) -> None:
    allocator = make(f"free_lists{options}")
    assert granted(allocator, allocator.allocate(size)) == rounded


def test_slices_are_carved_consecutively(make: Make) -> None:
    allocator = make("free_lists")
    addresses = [allocator.allocate(size) for size in (1, 2000, 1024, 5000)]
    offsets = [place(allocator, address)[1] for address in addresses]
    assert offsets == [0, 1024, 3072, 4096]


def test_the_last_freed_slice_of_the_rounded_size_is_used_first(make: Make) -> None:
    allocator = make("free_lists")
    a, b, c = (allocator.allocate(size) for size in (1000, 1024, 700))
    for address in (b, a, c):
        allocator.deallocate(address)
    assert [allocator.allocate(1) for _ in range(3)] == [c, a, b]


def test_a_slice_of_2048_never_serves_1024(make: Make) -> None:
    allocator = make("free_lists")
    freed = allocator.allocate(2048)
    allocator.deallocate(freed)
    assert place(allocator, allocator.allocate(1024)) == (0, 2048)
    assert allocator.allocate(2048) == freed


def test_neighbors_never_coalesce(make: Make) -> None:
    allocator = make("free_lists:buffer=4096", 4096)
    for address in [allocator.allocate(1024) for _ in range(4)]:
        allocator.deallocate(address)
    assert blocks(allocator) == [[-1024] * 4]


def test_a_buffer_is_5_gib_or_the_memory_left(make: Make) -> None:
    allocator = make("free_lists", "12GiB")
    for _ in range(12):
        allocator.allocate(GIB)
    assert segments(allocator) == [5 * GIB, 5 * GIB, 2 * GIB]


def test_a_request_larger_than_a_buffer_gets_a_buffer_of_its_size(make: Make) -> None:
    allocator = make("free_lists:buffer=1MiB")
    allocator.allocate(3 * MIB + 1)
    assert segments(allocator) == [3 * MIB + 1024]


def test_after_a_refusal_half_the_buffer_is_requested(make: Make) -> None:
    allocator = make("free_lists:buffer=64MiB", fail_above=20 * MIB)
    allocator.allocate(1)
    assert segments(allocator) == [16 * MIB]
    assert allocator.device.stats().refused_calls == 2


def test_the_rest_of_a_used_up_buffer_becomes_a_slice(make: Make) -> None:
    allocator = make("free_lists:buffer=1MiB")
    allocator.allocate(MIB - 8192)
    allocator.allocate(16384)
    assert blocks(allocator) == [[MIB - 8192, -8192], [16384, 16384 - MIB]]
    assert place(allocator, allocator.allocate(8000)) == (0, MIB - 8192)


def test_idle_buffers_are_returned_before_a_retry(make: Make) -> None:
    allocator = make("free_lists:buffer=1MiB", "3MiB")
    kept = allocator.allocate(MIB)
    idle = [allocator.allocate(MIB), allocator.allocate(MIB)]
    for address in idle:
        allocator.deallocate(address)
    assert allocator.stats().retries == 0
    allocator.allocate(2 * MIB)
    assert allocator.stats().retries == 1
    assert segments(allocator) == [MIB, 2 * MIB]
    assert place(allocator, kept) == (0, 0)


def test_a_buffer_with_a_live_slice_is_never_returned(make: Make) -> None:
    allocator = make("free_lists:buffer=1MiB", "1MiB")
    kept, freed = allocator.allocate(1024), allocator.allocate(MIB - 1024)
    allocator.deallocate(freed)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(2048)
    allocator.trim()
    assert segments(allocator) == [MIB]
    assert allocator.allocate(MIB - 1024) == freed
    allocator.deallocate(kept)
