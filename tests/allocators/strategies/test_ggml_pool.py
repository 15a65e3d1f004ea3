# SPDX-License-Identifier: Apache-2.0
"""ggml's two pools of temporary CUDA buffers."""

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks, granted, place, segments
from tests.conftest import GIB, KIB, MIB, Make

STACK = "ggml_pool:vmm=true"


@pytest.mark.parametrize(
    ("size", "granted_bytes"), [(1, 256), (243, 256), (244, 256), (245, 512), (100_000, 105_216)]
)
def test_a_new_buffer_has_five_percent_more(make: Make, size: int, granted_bytes: int) -> None:
    pool = make("ggml_pool")
    assert granted(pool, pool.allocate(size)) == granted_bytes


def test_the_smallest_buffer_that_is_large_enough_serves_whole(make: Make) -> None:
    pool = make("ggml_pool")
    sizes = (3000, 1000, 2000)  # 3328, 1280 and 2304 bytes with 5 %
    large, small, middle = (pool.allocate(size) for size in sizes)
    for buffer in (large, small, middle):
        pool.deallocate(buffer)
    assert [pool.allocate(size) for size in (1281, 1, 2305)] == [middle, small, large]
    assert blocks(pool) == [[3328], [1280], [2304]]


def test_among_equal_buffers_the_first_place_decides(make: Make) -> None:
    pool = make("ggml_pool")
    first, second, third = (pool.allocate(1000) for _ in range(3))
    for buffer in (third, first, second):
        pool.deallocate(buffer)
    assert pool.allocate(1000) == third  # and leaves the first place, which the next free takes
    other = pool.allocate(5000)
    pool.deallocate(other)
    pool.deallocate(third)
    assert [pool.allocate(1000) for _ in range(3)] == [first, second, third]


def test_a_buffer_that_is_64_gib_larger_does_not_serve(make: Make) -> None:
    pool = make("ggml_pool", 200 * GIB)
    huge = pool.allocate(80 * GIB)  # 84 GiB
    pool.deallocate(huge)
    assert granted(pool, pool.allocate(20 * GIB)) == 21 * GIB
    assert pool.allocate(20 * GIB + 1) == huge


def test_a_freed_buffer_without_a_place_is_returned(make: Make) -> None:
    pool = make("ggml_pool")
    for buffer in [pool.allocate(1000) for _ in range(300)]:
        pool.deallocate(buffer)
    assert segments(pool) == [1280] * 256


def test_all_free_buffers_are_returned_before_a_request_fails(make: Make) -> None:
    pool = make("ggml_pool", "10MiB")
    pool.deallocate(pool.allocate(5 * MIB))
    pool.allocate(6 * MIB)
    assert (segments(pool), pool.stats().retries) == ([6_606_080], 1)
    with pytest.raises(allocators.OutOfMemory):
        pool.allocate(5 * MIB)


def test_the_stack_maps_what_is_missing_at_its_end(make: Make) -> None:
    pool = make(STACK)
    addresses = [pool.allocate(size) for size in (1, 129, 3 * MIB, 256 * KIB)]
    offsets = [place(pool, address) for address in addresses]
    assert offsets == [(0, 0), (0, 128), (0, 384), (0, 3 * MIB + 384)]
    assert segments(pool) == [4 * MIB]
    assert pool.device.stats().map_calls == 2
    for address in reversed(addresses):
        pool.deallocate(address)
    assert pool.allocate(4 * MIB) == addresses[0]
    assert segments(pool) == [4 * MIB]


def test_a_block_freed_out_of_order_waits_for_those_above_it(make: Make) -> None:
    pool = make(STACK)
    low, middle, high = (pool.allocate(MIB) for _ in range(3))
    pool.deallocate(middle)
    assert place(pool, pool.allocate(MIB)) == (0, 3 * MIB)
    pool.deallocate(low)
    pool.deallocate(high)
    assert blocks(pool) == [[-3 * MIB, MIB]]


def test_blocks_freed_out_of_order_are_free_when_the_top_is(make: Make) -> None:
    pool = make(STACK)
    low, middle, high = (pool.allocate(MIB) for _ in range(3))
    pool.deallocate(middle)
    pool.deallocate(high)
    assert pool.allocate(MIB) == middle
    pool.deallocate(low)
    pool.trim()  # 2 MiB below the top stay mapped, and 2 MiB above it do not
    assert segments(pool) == [2 * MIB]


def test_the_stack_ends_at_32_gib(make: Make) -> None:
    pool = make(STACK, "80GiB")
    pool.allocate(31 * GIB)
    with pytest.raises(allocators.OutOfMemory):
        pool.allocate(GIB + 1)
    pool.allocate(GIB)
    assert segments(pool) == [32 * GIB]
