# SPDX-License-Identifier: Apache-2.0
"""bfc's timestamped frees: freed memory is reused after the mark of a step, or if necessary."""

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import segments
from tests.conftest import MIB, Make

SPEC = "bfc:timestamped_frees=true"


def unsafe(allocator: allocators.Allocator) -> int:
    """Number of freed chunks above the safe frontier."""
    return allocator.counters()["unsafe_chunks"]


def early(allocator: allocators.Allocator) -> int:
    """Number of chunks made safe early for lack of memory."""
    return allocator.counters()["early_chunks"]


def test_out_of_memory_makes_chunks_safe_one_by_one_in_free_order(make: Make) -> None:
    allocator = make(SPEC + ",memory_limit=2MiB")
    quarters = [allocator.allocate(MIB // 2) for _ in range(4)]
    for index in (2, 0, 1, 3):
        allocator.deallocate(quarters[index])
    assert allocator.allocate(MIB // 2) == quarters[2]
    assert (unsafe(allocator), early(allocator)) == (3, 1)
    assert allocator.allocate(MIB) == quarters[0]  # from the next two
    assert (unsafe(allocator), early(allocator)) == (1, 3)
    assert allocator.allocate(MIB // 2) == quarters[3]
    assert (unsafe(allocator), early(allocator)) == (0, 4)
    assert allocator.stats().retries == 0


def test_out_of_memory_makes_no_more_chunks_safe_than_needed(make: Make) -> None:
    allocator = make(SPEC + ",memory_limit=2MiB")
    halves = [allocator.allocate(MIB), allocator.allocate(MIB)]
    for half in halves:
        allocator.deallocate(half)
    assert allocator.allocate(MIB // 2) == halves[0]
    assert unsafe(allocator) == 1
    assert allocator.allocate(MIB // 2) == halves[0] + MIB // 2  # safe since the last request
    assert early(allocator) == 1


def test_a_request_that_fits_is_served_without_safe_chunks(make: Make) -> None:
    allocator = make(SPEC + ",memory_limit=2MiB")
    for chunk in [allocator.allocate(MIB // 8) for _ in range(16)]:
        allocator.deallocate(chunk)
    allocator.allocate(2 * MIB)
    assert early(allocator) == 16
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(1)


def test_idle_regions_are_returned_before_waiting_for_the_device(make: Make) -> None:
    allocator = make(SPEC + ",memory_limit=6MiB,garbage_collection=true")
    for chunk in [allocator.allocate(2 * MIB), allocator.allocate(4 * MIB)]:
        allocator.deallocate(chunk)
    allocator.allocate(4 * MIB)
    assert allocator.device.stats().free_calls == 2
    assert (unsafe(allocator), early(allocator)) == (0, 0)


def test_chunks_of_returned_regions_are_forgotten(make: Make) -> None:
    allocator = make(SPEC + ",memory_limit=6MiB,garbage_collection=true")
    halves = [allocator.allocate(MIB) for _ in range(2)]
    kept, other = allocator.allocate(MIB), allocator.allocate(MIB)
    for chunk in (other, *halves):
        allocator.deallocate(chunk)
    allocator.allocate(2 * MIB)  # in the second region, which has 4 MiB
    allocator.allocate(2 * MIB)  # in place of the first
    assert (segments(allocator), unsafe(allocator)) == ([4 * MIB, 2 * MIB], 1)
    allocator.step()
    assert allocator.allocate(MIB) == other
    allocator.deallocate(kept)
    allocator.check()


def test_a_trim_does_not_need_a_step(make: Make) -> None:
    allocator = make(SPEC)
    allocator.allocate(2 * MIB)
    allocator.deallocate(allocator.allocate(4 * MIB))
    allocator.trim()
    assert segments(allocator) == [2 * MIB]
    assert unsafe(allocator) == 0


def test_an_unsafe_chunk_cannot_be_freed_again(make: Make) -> None:
    allocator = make(SPEC)
    chunk = allocator.allocate(1000)
    allocator.deallocate(chunk)
    with pytest.raises(allocators.BadFree):
        allocator.deallocate(chunk)
    assert unsafe(allocator) == 1
    assert allocator.stats().frees == 1


def test_the_statistics_count_an_unsafe_chunk_as_free(make: Make) -> None:
    allocator = make(SPEC + ",memory_limit=2MiB")
    allocator.deallocate(allocator.allocate(2 * MIB))
    stats = allocator.stats()
    assert (stats.requested, stats.allocated, stats.reserved) == (0, 0, 2 * MIB)
    assert allocator.largest_free() == 2 * MIB


def test_without_the_option_no_chunks_are_counted(make: Make) -> None:
    assert {"unsafe_chunks", "early_chunks"}.isdisjoint(make("bfc").counters())
