# SPDX-License-Identifier: Apache-2.0
"""MLX's cache of Metal buffers: which buffer serves a request, and which are returned."""

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks, place, segments
from tests.conftest import KIB, MIB, Make


@pytest.mark.parametrize(
    ("cached", "size", "reused"),
    [
        (200, 200, True),
        (200, 101, True),
        (200, 100, False),  # twice the size
        (16 * KIB + 1, 16 * KIB, False),  # 32 KiB are twice the size
        (48 * KIB, 16 * KIB + 1, True),  # 32 KiB plus less than two pages
        (64 * KIB, 16 * KIB + 1, False),
        (MIB, MIB - 32 * KIB + 1, True),
        (MIB, MIB - 32 * KIB, False),
        (MIB, MIB + 1, False),
    ],
)
def test_a_buffer_serves_less_than_twice_and_less_than_two_pages_more(
    make: Make, cached: int, size: int, reused: bool
) -> None:
    cache = make("mlx_cache")
    old = cache.allocate(cached)
    cache.deallocate(old)
    assert (cache.allocate(size) == old) == reused


def test_sizes_above_a_page_are_whole_pages(make: Make) -> None:
    cache = make("mlx_cache")
    for size in (1, 16 * KIB, 16 * KIB + 1, 33 * KIB):
        cache.allocate(size)
    assert segments(cache) == [1, 16 * KIB, 32 * KIB, 48 * KIB]


def test_of_equal_buffers_the_one_that_was_freed_first_serves(make: Make) -> None:
    cache = make("mlx_cache")
    first, second, larger = (cache.allocate(size) for size in (MIB, MIB, MIB + 16 * KIB))
    for buffer in (larger, second, first):
        cache.deallocate(buffer)
    assert [cache.allocate(MIB) for _ in range(3)] == [second, first, larger]


def test_near_the_memory_limit_the_buffers_freed_first_are_returned(make: Make) -> None:
    cache = make("mlx_cache:memory_limit=100MiB")
    buffers = [cache.allocate(size * MIB) for size in (10, 20, 30, 30)]
    for buffer in (buffers[1], buffers[0], buffers[2]):
        cache.deallocate(buffer)
    cache.allocate(35 * MIB)  # 25 MiB too many: returns 20 MiB and 10 MiB
    assert blocks(cache) == [[-30 * MIB], [30 * MIB], [35 * MIB]]


def test_at_the_limit_itself_nothing_is_returned(make: Make) -> None:
    cache = make("mlx_cache:memory_limit=100MiB")
    cache.deallocate(cache.allocate(60 * MIB))
    cache.allocate(40 * MIB)
    assert segments(cache) == [60 * MIB, 40 * MIB]


def test_all_is_returned_if_nine_tenths_would_be(make: Make) -> None:
    cache = make("mlx_cache:memory_limit=100MiB")
    buffers = [cache.allocate(size * MIB) for size in (90, 10)]
    for buffer in buffers:
        cache.deallocate(buffer)
    cache.allocate(89 * MIB)  # 89 of 100 MiB: only the first is returned
    assert segments(cache) == [10 * MIB, 89 * MIB]
    cache.trim()
    cache.deallocate(cache.allocate(10 * MIB))
    cache.allocate(100 * MIB)  # more than 9 MiB of 10
    assert cache.stats().reserved == 189 * MIB


def test_the_default_limit_is_95_percent_of_the_device(make: Make) -> None:
    cache = make("mlx_cache", 100 * MIB)
    cache.deallocate(cache.allocate(50 * MIB))
    cache.allocate(44 * MIB)
    assert cache.stats().reserved == 94 * MIB
    cache.allocate(2 * MIB)
    assert segments(cache) == [44 * MIB, 2 * MIB]


def test_a_request_returns_what_exceeds_the_limit_of_the_cache(make: Make) -> None:
    cache = make("mlx_cache:cache_limit=25MiB")
    buffers = [cache.allocate(size * MIB) for size in (10, 20, 30)]
    for buffer in buffers:  # 30 MiB are cached when the third is freed, which is returned
        cache.deallocate(buffer)
    assert segments(cache) == [10 * MIB, 20 * MIB]
    cache.allocate(MIB)
    assert blocks(cache) == [[-20 * MIB], [MIB]]


def test_at_the_most_buffers_the_cache_is_returned_and_then_a_request_fails(make: Make) -> None:
    cache = make("mlx_cache:buffers=3")
    kept = [cache.allocate(MIB) for _ in range(2)]
    cache.deallocate(cache.allocate(5 * MIB))
    kept.append(cache.allocate(MIB))
    assert segments(cache) == [MIB, MIB, MIB]
    with pytest.raises(allocators.OutOfMemory):
        cache.allocate(MIB)
    cache.deallocate(kept[0])
    assert place(cache, cache.allocate(MIB))[0] == 0
