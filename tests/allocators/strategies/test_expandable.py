# SPDX-License-Identifier: Apache-2.0
"""expandable: 2 MiB pages are mapped where a block needs them, or moved if free ones suffice."""

import random

import pytest

from allocbench import allocators
from allocbench.workloads import catalog
from tests.allocators.strategies.seen import blocks, fails, granted, segments
from tests.conftest import GIB, MIB, Make

PAGE = 2 * MIB


def calls(allocator: allocators.Allocator) -> tuple[int, int]:
    """Numbers of pages mapped and unmapped so far."""
    stats = allocator.device.stats()
    return stats.map_calls, stats.unmap_calls


def moved(allocator: allocators.Allocator) -> tuple[int, int]:
    """Number of requests for which pages were moved, and number of pages."""
    counters = allocator.counters()
    return counters["stitched_requests"], counters["moved_pages"]


# -- pages are mapped where they are needed


@pytest.mark.parametrize(("size", "rounded"), [(1, 256), (256, 256), (257, 512), (10**7, 10000128)])
def test_sizes_are_rounded_up_to_256(make: Make, size: int, rounded: int) -> None:
    allocator = make("expandable")
    assert granted(allocator, allocator.allocate(size)) == rounded


def test_only_the_pages_that_hold_blocks_are_mapped(make: Make) -> None:
    allocator = make("expandable")
    allocator.allocate(3 * MIB)
    assert blocks(allocator) == [[3 * MIB, -MIB]]
    allocator.allocate(3 * MIB)  # begins in the free MiB: one more page
    assert blocks(allocator) == [[3 * MIB, 3 * MIB]]
    assert calls(allocator) == (3, 0)
    assert allocator.device.stats().malloc_calls == 0


def test_small_requests_have_pages_of_their_own(make: Make) -> None:
    allocator = make("expandable")
    for size in (MIB, MIB + 1, 100, 2 * MIB):
        allocator.allocate(size)
    assert sorted(segments(allocator)) == [2 * MIB, 4 * MIB]
    together = make("expandable:small=0")
    for size in (MIB, MIB + 1, 100, 2 * MIB):
        together.allocate(size)
    assert segments(together) == [6 * MIB]


def test_a_mapped_block_that_fits_needs_no_device_call(make: Make) -> None:
    allocator = make("expandable")
    large, _, small, _ = (allocator.allocate(size * PAGE) for size in (3, 1, 2, 1))
    for block in (large, small):
        allocator.deallocate(block)
    before = calls(allocator)
    assert allocator.allocate(2 * PAGE) == small
    assert allocator.allocate(PAGE) == large
    assert calls(allocator) == before


# -- stitching


def test_free_pages_from_different_places_become_one_block(make: Make) -> None:
    allocator = make("expandable", 5 * PAGE)
    held = [allocator.allocate(PAGE) for _ in range(5)]
    for index in (0, 2, 4):
        allocator.deallocate(held[index])
    address = allocator.allocate(3 * PAGE)
    assert granted(allocator, address) == 3 * PAGE
    assert allocator.stats().reserved == 5 * PAGE
    assert calls(allocator) == (7, 2)  # the last of the three was already in place
    assert moved(allocator) == (1, 2)
    assert fails(allocator, 1)


def test_a_page_that_holds_part_of_a_block_stays(make: Make) -> None:
    allocator = make("expandable", 4 * PAGE)
    left, middle, right = (allocator.allocate(size) for size in (3 * MIB, 2 * MIB, 3 * MIB))
    for block in (left, right):
        allocator.deallocate(block)
    assert blocks(allocator) == [
        [-3 * MIB, 2 * MIB, -3 * MIB]
    ]  # the middle block touches two pages
    address = allocator.allocate(3 * PAGE - MIB)
    assert address == middle + 2 * MIB
    assert blocks(allocator) == [[-MIB, 2 * MIB, 5 * MIB]]
    assert allocator.stats().reserved == 4 * PAGE


def test_the_range_that_lacks_the_fewest_pages_is_taken(make: Make) -> None:
    allocator = make("expandable")
    held = [allocator.allocate(size * PAGE) for size in (2, 1, 4, 1, 3)]
    for index in (0, 2):
        allocator.deallocate(held[index])
    allocator.allocate(5 * PAGE)  # at the end, using all but the last of the 2 + 4 free pages
    assert moved(allocator) == (1, 5)
    assert allocator.allocate(PAGE) == held[2] + 3 * PAGE
    allocator.deallocate(held[4])  # its 3 pages are between two blocks
    before = calls(allocator)
    # Ranges without a block: 2 unmapped; 3 unmapped; 3 free; the rest. All lack four or more.
    allocator.allocate(4 * PAGE)
    assert (calls(allocator)[0] - before[0], calls(allocator)[1] - before[1]) == (4, 3)


def test_a_free_block_grows_into_unmapped_addresses_on_either_side(make: Make) -> None:
    allocator = make("expandable", 8 * PAGE)
    held = [allocator.allocate(size * PAGE) for size in (3, 1, 2, 1)]
    allocator.deallocate(held[0])
    allocator.allocate(4 * PAGE)  # uses the 3 pages that were free and the one not yet mapped
    allocator.deallocate(held[1])
    before = calls(allocator)
    # Before held[2]: 3 unmapped pages and 1 free page. The request ends with the free one.
    assert fails(allocator, 2 * PAGE)
    allocator.deallocate(held[3])
    assert allocator.allocate(2 * PAGE) == held[1] - PAGE
    assert (calls(allocator)[0] - before[0], calls(allocator)[1] - before[1]) == (1, 1)


def test_pages_next_to_the_range_can_be_moved(make: Make) -> None:
    allocator = make("expandable")
    held = [allocator.allocate(int(size * PAGE)) for size in (1, 2, 1.5, 1)]
    allocator.deallocate(held[1])
    allocator.allocate(3 * PAGE)
    assert moved(allocator) == (1, 2)
    allocator.deallocate(held[0])
    allocator.deallocate(held[2])
    # 1 free page, 2 unmapped, 1.5 free: the request takes these and the page before them.
    assert allocator.allocate(int(2.5 * PAGE)) == held[2] - PAGE
    assert moved(allocator) == (2, 3)
    assert [segment.address for segment in allocator.snapshot()] == [held[2] - PAGE]
    allocator.check()


def test_pages_are_taken_from_the_smallest_free_blocks_first(make: Make) -> None:
    allocator = make("expandable")
    held = [allocator.allocate(size * PAGE) for size in (3, 1, 2, 1)]
    for index in (0, 2):
        allocator.deallocate(held[index])
    allocator.allocate(4 * PAGE)
    # Two pages of the smaller block and two of the larger one, which keeps its last page.
    assert [sum(1 for b in s if b < 0) for s in blocks(allocator)] == [1, 0]
    assert blocks(allocator)[0] == [-PAGE, PAGE]


def test_pages_of_the_other_pool_and_other_streams_are_used_too(make: Make) -> None:
    allocator = make("expandable", 4 * PAGE)
    small = [allocator.allocate(MIB, stream=3) for _ in range(4)]
    large = allocator.allocate(2 * PAGE, stream=4)
    assert fails(allocator, PAGE)
    for block in small:
        allocator.deallocate(block, stream=3)
    allocator.deallocate(large, stream=4)
    allocator.allocate(4 * PAGE)
    assert moved(allocator) == (1, 4)
    assert segments(allocator) == [4 * PAGE]


def test_pages_of_the_same_stream_are_moved_before_those_of_others(make: Make) -> None:
    allocator = make("expandable", 4 * PAGE)
    other = allocator.allocate(PAGE, stream=1)
    own, _, _ = (allocator.allocate(PAGE, stream=2) for _ in range(3))
    allocator.deallocate(other, stream=1)
    allocator.deallocate(own, stream=2)
    allocator.allocate(1, stream=2)
    before = calls(allocator)
    assert allocator.allocate(PAGE, stream=1) == other
    assert calls(allocator) == before


def test_requests_served_from_a_full_device_count_as_retries(make: Make) -> None:
    allocator = make("expandable", 4 * PAGE)
    first, _ = allocator.allocate(2 * PAGE), allocator.allocate(PAGE)
    allocator.deallocate(first)
    allocator.allocate(3 * PAGE)
    assert allocator.stats().retries == 1
    ample = make("expandable")
    first, _ = ample.allocate(2 * PAGE), ample.allocate(PAGE)
    ample.deallocate(first)
    ample.allocate(3 * PAGE)
    assert (ample.stats().retries, moved(ample)) == (0, (1, 2))


@pytest.mark.parametrize(("slack", "pages"), [("0", 2), ("0.2", 2), ("0.25", 1), ("0.5", 0)])
def test_new_pages_are_mapped_up_to_the_slack(make: Make, slack: str, pages: int) -> None:
    allocator = make(f"expandable:slack={slack}")
    first, _ = allocator.allocate(2 * PAGE), allocator.allocate(PAGE)
    allocator.deallocate(first)
    allocator.allocate(3 * PAGE)  # 4 pages allocated: the peak; 3 + 3 without moving any
    assert moved(allocator)[1] == pages
    assert allocator.stats().reserved == (6 - pages) * PAGE


def test_with_infinite_slack_pages_move_only_on_a_full_device(make: Make) -> None:
    allocator = make("expandable:slack=inf", 7 * PAGE)
    held = [allocator.allocate(PAGE) for _ in range(4)]
    for index in (0, 2):
        allocator.deallocate(held[index])
    allocator.allocate(2 * PAGE)
    assert moved(allocator) == (0, 0)
    allocator.allocate(3 * PAGE)
    assert moved(allocator) == (1, 2)


# -- refusals of the device


@pytest.mark.parametrize("call", [4, 5, 6])
def test_free_pages_replace_a_page_refused_half_way(make: Make, call: int) -> None:
    allocator = make("expandable:slack=inf", fail_call=call)
    first, _ = allocator.allocate(2 * PAGE), allocator.allocate(PAGE)
    allocator.deallocate(first)
    allocator.allocate(3 * PAGE)
    assert allocator.stats().reserved == 4 * PAGE
    assert (allocator.stats().retries, allocator.stats().failures) == (1, 0)


def test_a_request_that_cannot_be_served_changes_nothing(make: Make) -> None:
    allocator = make("expandable", 6 * PAGE)
    held = [allocator.allocate(PAGE) for _ in range(5)]
    for index in (0, 2):
        allocator.deallocate(held[index])
    before = blocks(allocator), calls(allocator)
    assert fails(allocator, 4 * PAGE)
    assert (blocks(allocator), calls(allocator)) == before
    allocator.allocate(3 * PAGE)


# -- a trim, streams, options


def test_a_trim_unmaps_wholly_free_pages(make: Make) -> None:
    allocator = make("expandable")
    held = [allocator.allocate(size) for size in (3 * MIB, 2 * MIB, 5 * MIB)]
    for index in (0, 2):
        allocator.deallocate(held[index])
    allocator.trim()
    assert blocks(allocator) == [[-MIB, 2 * MIB, -MIB]]
    allocator.deallocate(held[1])
    allocator.trim()
    assert segments(allocator) == []
    assert calls(allocator) == (5, 5)


def test_pages_after_an_unmapped_one_are_eventually_returned() -> None:
    device = allocators.SimulatedDevice("64MiB")
    allocator = allocators.make("expandable:page=4MiB", device)
    first, _ = allocator.allocate(4 * MIB), allocator.allocate(4 * MIB)
    allocator.deallocate(first)
    allocator.trim()
    del allocator
    assert device.reserved == 0


def test_a_block_freed_on_another_stream_waits_for_a_step(make: Make) -> None:
    allocator = make("expandable")
    block = allocator.allocate(PAGE, stream=1)
    allocator.deallocate(block, stream=2)
    assert allocator.allocate(PAGE, stream=1) != block
    assert allocator.allocate(PAGE, stream=2) != block
    allocator.step()
    assert allocator.allocate(PAGE, stream=1) == block


def test_a_shortage_waits_for_all_streams(make: Make) -> None:
    allocator = make("expandable", 2 * PAGE)
    allocator.deallocate(allocator.allocate(2 * PAGE, stream=1), stream=2)
    allocator.allocate(2 * PAGE, stream=3)
    assert allocator.stats().failures == 0


def test_a_block_serves_its_own_stream_without_a_move(make: Make) -> None:
    allocator = make("expandable")
    block = allocator.allocate(PAGE, stream=1)
    allocator.deallocate(block, stream=1)
    assert allocator.allocate(PAGE, stream=1) == block
    allocator.deallocate(block, stream=1)
    assert allocator.allocate(PAGE, stream=2) != block
    assert moved(allocator) == (1, 1)


def test_larger_pages_are_mapped_and_moved_whole(make: Make) -> None:
    allocator = make("expandable:page=6MiB", "20MiB")
    first, second = allocator.allocate(5 * MIB), allocator.allocate(5 * MIB)
    assert segments(allocator) == [12 * MIB]
    assert calls(allocator) == (2, 0)
    allocator.deallocate(first)
    assert fails(allocator, 9 * MIB)  # 2 MiB free at the end, and one page
    allocator.deallocate(second)
    allocator.allocate(18 * MIB)
    assert segments(allocator) == [18 * MIB]


# -- guarantees, checked from the outside


def idle_pages(allocator: allocators.Allocator, page: int) -> int:
    """Mapped pages, at multiples of `page` bytes, that no allocated block touches."""
    count = 0
    for segment in allocator.snapshot():
        used = {
            index // page
            for block in segment.blocks
            if block.allocated
            for index in range(block.address // page * page, block.address + block.size, page)
        }
        assert segment.address % page == segment.size % page == 0
        count += segment.size // page - len(used)
    return count


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(
    ("spec", "page"),
    [("expandable", 2), ("expandable:slack=0.1", 2), ("expandable:page=8MiB,small=0", 8)],
)
def test_no_request_fails_while_free_pages_and_device_memory_suffice(
    make: Make, spec: str, page: int, seed: int
) -> None:
    page *= MIB
    drawn = random.Random(seed)
    capacity = drawn.choice([12, 20, 40]) * page + 12345
    allocator = make(spec, capacity, alignment=page)
    live: list[int] = []
    served = refused = 0
    for _ in range(400):
        if live and drawn.random() < 0.45:
            allocator.deallocate(live.pop(drawn.randrange(len(live))))
            continue
        most = capacity // 2
        size = int(most ** drawn.random() if drawn.random() < 0.3 else 1 + most * drawn.random())
        room = (capacity - allocator.stats().reserved) // page
        must = -(-size // page) <= idle_pages(allocator, page) + room
        try:
            live.append(allocator.allocate(size))
            served += must
        except allocators.OutOfMemory:
            assert not must, f"{size} bytes"
            refused += 1
    assert served > 50
    assert refused > 10


@pytest.mark.parametrize("seed", range(3))
def test_new_pages_are_mapped_only_when_free_ones_are_too_few(make: Make, seed: int) -> None:
    allocator = make("expandable", 64 * GIB)
    drawn = random.Random(seed)
    live: list[int] = []
    grown = 0
    for _ in range(1500):
        before = allocator.stats().reserved
        if live and drawn.random() < 0.48:
            allocator.deallocate(live.pop(drawn.randrange(len(live))))
        else:
            live.append(allocator.allocate(int((24 * PAGE) ** drawn.random())))
        stats = allocator.stats()
        if stats.reserved > max(before, -(-stats.peak_allocated // PAGE) * PAGE):
            grown += 1
            assert idle_pages(allocator, PAGE) == 0
    assert grown > 10


@pytest.mark.parametrize(
    ("workload", "share"), [("gpt2-train", 0.007), ("llama3-8b-lora", 0.001), ("llm-decode", 0.011)]
)
def test_reserved_bytes_stay_close_to_the_load(workload: str, share: float) -> None:
    trace = catalog.load(workload)
    peak = {}
    for spec in ("expandable", "caching:expandable_segments=true"):
        device = allocators.SimulatedDevice("80GiB")
        result = allocators.replay(trace, allocators.make(spec, device), samples=10)
        peak[spec] = result.stats.peak_reserved / result.max_load - 1
    assert peak["expandable"] < share
    assert peak["expandable"] < peak["caching:expandable_segments=true"] / 2
