# SPDX-License-Identifier: Apache-2.0
"""tlsf: good fit from size classes, 32 per power of two."""

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks, granted, place, segments
from tests.conftest import MIB, Make

KIB = 1024


def holes(allocator: allocators.Allocator, *sizes: int) -> list[int]:
    """Creates free blocks of these sizes, freed in this order, with none next to another."""
    created = []
    for size in sizes:
        created.append(allocator.allocate(size))
        allocator.allocate(256)
    for address in created:
        allocator.deallocate(address)
    return created


@pytest.mark.parametrize(("size", "rounded"), [(1, 256), (256, 256), (257, 512), (10**6, 1000192)])
def test_sizes_are_rounded_up_to_256(make: Make, size: int, rounded: int) -> None:
    allocator = make("tlsf")
    assert granted(allocator, allocator.allocate(size)) == rounded


def test_a_block_is_split_and_coalesces(make: Make) -> None:
    allocator = make("tlsf:segment=1MiB")
    a, b, c = (allocator.allocate(1024) for _ in range(3))
    assert blocks(allocator) == [[1024, 1024, 1024, 3072 - MIB]]
    allocator.deallocate(a)
    allocator.deallocate(c)
    allocator.deallocate(b)
    assert blocks(allocator) == [[-MIB]]


def test_the_first_class_with_only_large_enough_blocks_is_taken(make: Make) -> None:
    allocator = make("tlsf:segment=1MiB")
    large, small = holes(allocator, 96 * KIB, 80 * KIB)
    assert allocator.allocate(70 * KIB) == small
    assert allocator.allocate(90 * KIB) == large


def test_the_last_freed_of_a_class_is_taken_first(make: Make) -> None:
    allocator = make("tlsf:segment=1MiB")
    first, second, third = holes(allocator, 64 * KIB, 64 * KIB, 64 * KIB)
    assert [allocator.allocate(64 * KIB) for _ in range(3)] == [third, second, first]


def test_a_block_of_a_higher_class_is_preferred(make: Make) -> None:
    allocator = make("tlsf:segment=1MiB")
    # 64 KiB and 64.5 KiB are in one class of width 2 KiB; 65 KiB might not fit into its blocks.
    near, _ = holes(allocator, 65 * KIB + 512, 128 * KIB)
    assert allocator.allocate(65 * KIB) != near


def test_the_requests_own_class_is_the_last_resort(make: Make) -> None:
    allocator = make("tlsf:segment=65KiB", 65 * KIB)
    address = allocator.allocate(65 * KIB)
    allocator.deallocate(address)
    assert allocator.allocate(65 * KIB) == address
    assert allocator.device.stats().malloc_calls == 1


def test_a_larger_request_has_a_segment_of_its_own_size(make: Make) -> None:
    allocator = make("tlsf:segment=1MiB")
    assert place(allocator, allocator.allocate(3 * MIB)) == (0, 0)
    assert segments(allocator) == [3 * MIB]


def test_idle_segments_make_room_on_a_full_device(make: Make) -> None:
    allocator = make("tlsf:segment=1MiB", 8 * MIB)
    allocator.deallocate(allocator.allocate(5 * MIB))
    allocator.allocate(7 * MIB)
    assert (segments(allocator), allocator.stats().retries) == ([7 * MIB], 1)
