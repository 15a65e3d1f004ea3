# SPDX-License-Identifier: Apache-2.0
"""buddy: power-of-two blocks that split in half and merge only with their buddies."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench import allocators
from tests.allocators.strategies.seen import blocks, granted, place, segments
from tests.conftest import GIB, MIB, Make


@pytest.mark.parametrize(
    ("size", "power"),
    [
        (1, 1024),
        (1024, 1024),
        (1025, 2048),
        (66 * 1024, 128 * 1024),
        (MIB, MIB),
        (MIB + 1, 2 * MIB),
    ],
)
def test_a_block_is_the_next_power_of_two_from_1_kib(make: Make, size: int, power: int) -> None:
    allocator = make("buddy")
    assert granted(allocator, allocator.allocate(size)) == power


@given(st.integers(513, 2**40))
def test_the_waste_stays_below_a_half(size: int) -> None:
    allocator = allocators.make("buddy", allocators.SimulatedDevice("4TiB"))
    block = granted(allocator, allocator.allocate(size))
    assert block.bit_count() == 1
    assert block - size < block / 2


def test_the_smallest_block_that_is_large_enough_is_halved(make: Make) -> None:
    allocator = make("buddy:region=16KiB", "16KiB")
    assert place(allocator, allocator.allocate(1024)) == (0, 0)
    assert blocks(allocator) == [[1024, -1024, -2048, -4096, -8192]]
    assert place(allocator, allocator.allocate(4000)) == (0, 4096)
    assert place(allocator, allocator.allocate(1500)) == (0, 2048)
    assert place(allocator, allocator.allocate(512)) == (0, 1024)


def test_the_lowest_of_equal_blocks_is_taken(make: Make) -> None:
    allocator = make("buddy:region=8KiB", "8KiB")
    addresses = [allocator.allocate(1024) for _ in range(8)]
    for index in (6, 2, 4):
        allocator.deallocate(addresses[index])
    assert [allocator.allocate(1) for _ in range(3)] == [addresses[index] for index in (2, 4, 6)]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_buddies_merge_and_other_neighbors_do_not(make: Make, order: tuple[int, ...]) -> None:
    allocator = make("buddy:region=4KiB", "4KiB")
    addresses = [allocator.allocate(1024) for _ in range(4)]
    freed = set()
    for index in order:
        allocator.deallocate(addresses[index])
        freed.add(index)
        halves = [
            [-2048] if {a, a + 1} <= freed else [-1024 if b in freed else 1024 for b in (a, a + 1)]
            for a in (0, 2)
        ]
        expected = [-4096] if len(freed) == 4 else halves[0] + halves[1]
        assert blocks(allocator) == [expected]


def test_a_buddy_that_is_itself_split_does_not_merge(make: Make) -> None:
    allocator = make("buddy:region=4KiB", "4KiB")
    left, right = allocator.allocate(2048), allocator.allocate(1024)
    allocator.deallocate(left)
    assert blocks(allocator) == [[-2048, 1024, -1024]]
    allocator.deallocate(right)
    assert blocks(allocator) == [[-4096]]


def test_sizes_of_more_than_32_bits_keep_all_their_bits(make: Make) -> None:
    allocator = make("buddy", "64GiB")
    for size, power in ((4 * GIB + 1, 8 * GIB), (5 * GIB, 8 * GIB), (9 * GIB, 16 * GIB)):
        address = allocator.allocate(size)
        assert granted(allocator, address) == power
        allocator.deallocate(address)
    first, second = allocator.allocate(16 * GIB), allocator.allocate(8 * GIB - 1)
    allocator.deallocate(first)
    allocator.deallocate(second)
    assert allocator.stats().allocated == 0


@pytest.mark.parametrize("region", [4096, MIB, 4 * GIB, 16 * GIB])
def test_offsets_are_relative_to_the_region(make: Make, region: int) -> None:
    allocator = make(f"buddy:region={region}", region)
    addresses = [allocator.allocate(region // 4) for _ in range(4)]
    assert [place(allocator, address) for address in addresses] == [
        (0, quarter * region // 4) for quarter in range(4)
    ]
    for index in (2, 0, 3, 1):
        allocator.deallocate(addresses[index])
    assert blocks(allocator) == [[-region]]


def test_memory_grows_by_regions(make: Make) -> None:
    allocator = make("buddy:region=1MiB", "16MiB")
    for size in (MIB, 1024, 3 * MIB, 512 * 1024):
        allocator.allocate(size)
    assert segments(allocator) == [MIB, MIB, 4 * MIB]


def test_a_region_is_limited_to_the_memory_left(make: Make) -> None:
    allocator = make("buddy", 3 * GIB // 2 + 4096)
    for _ in range(6):
        allocator.allocate(GIB // 4)
    assert segments(allocator) == [GIB, GIB // 2]
    allocator.allocate(4096)
    assert segments(allocator) == [GIB, GIB // 2, 4096]


def test_after_a_refusal_half_the_region_is_requested(make: Make) -> None:
    allocator = make("buddy:region=64MiB", fail_above=20 * MIB)
    allocator.allocate(1)
    assert segments(allocator) == [16 * MIB]


def test_idle_regions_are_returned_before_a_retry(make: Make) -> None:
    allocator = make("buddy:region=1MiB", "4MiB")
    for address in [allocator.allocate(MIB) for _ in range(4)]:
        allocator.deallocate(address)
    allocator.allocate(4 * MIB)
    assert segments(allocator) == [4 * MIB]
    assert allocator.stats().retries == 1
