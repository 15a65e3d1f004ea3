# SPDX-License-Identifier: Apache-2.0
"""slab: slabs of equal objects for each size class, given back when empty."""

import pytest

from tests.allocators.strategies.seen import blocks, granted, place, segments
from tests.conftest import GIB, MIB, Make


@pytest.mark.parametrize(
    ("size", "rounded"),
    [
        (1, 256),
        (257, 512),
        (2048, 2048),
        (2049, 2304),  # eight classes from 2 KiB to 4 KiB
        (4097, 4608),
        (66 << 10, 72 << 10),  # a buddy allocator would take 128 KiB
        (5 * GIB, 5 * GIB),
    ],
)
def test_a_request_takes_an_object_of_its_class(make: Make, size: int, rounded: int) -> None:
    allocator = make("slab", 8 * GIB)
    assert granted(allocator, allocator.allocate(size)) == rounded


@pytest.mark.parametrize("size", [2049, 5000, 10**6, 10**9 + 7])
def test_less_than_an_eighth_is_added_above_2_kib(make: Make, size: int) -> None:
    allocator = make("slab", 2 * GIB)
    allocator.allocate(size)
    assert allocator.stats().allocated - size <= size / 8 + 255


def test_objects_of_a_class_share_a_slab_and_classes_do_not(make: Make) -> None:
    allocator = make("slab:slab=4096")
    small = [allocator.allocate(1000) for _ in range(5)]
    other = allocator.allocate(300)
    assert [place(allocator, address) for address in small] == [
        (0, 0),
        (0, 1024),
        (0, 2048),
        (0, 3072),
        (1, 0),
    ]
    assert place(allocator, other) == (2, 0)
    assert segments(allocator) == [4096] * 3


def test_partial_slabs_and_the_last_freed_object_are_used_first(make: Make) -> None:
    allocator = make("slab:slab=4096")
    first, second = ([allocator.allocate(2048) for _ in range(2)] for _ in range(2))
    for address in (*second, first[0]):
        allocator.deallocate(address)
    assert allocator.allocate(2048) == first[0]
    assert allocator.allocate(2048) == second[1]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_class_keeps_a_limited_number_of_empty_slabs(make: Make, kept: int) -> None:
    allocator = make(f"slab:slab=4096,empty_slabs={kept}")
    for address in [allocator.allocate(4096) for _ in range(5)]:
        allocator.deallocate(address)
    assert segments(allocator) == [4096] * kept
    assert blocks(allocator) == [[-4096]] * kept
    allocator.trim()
    assert segments(allocator) == []


def test_a_larger_object_has_a_slab_of_its_own(make: Make) -> None:
    allocator = make("slab")
    allocator.allocate(3 * MIB)
    assert segments(allocator) == [3 * MIB]


def test_empty_slabs_of_other_classes_make_room_on_a_full_device(make: Make) -> None:
    allocator = make("slab", 8 * MIB)
    allocator.deallocate(allocator.allocate(6 * MIB))
    assert granted(allocator, allocator.allocate(5 * MIB)) == 5 * MIB
    assert allocator.stats().retries == 1
