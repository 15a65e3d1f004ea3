# SPDX-License-Identifier: Apache-2.0
"""planned: the smallest blocks come from chunks of equal blocks, on pages of their own."""

import random

import pytest

from allocbench import allocators
from tests.allocators.strategies.test_planned import PAGE, get, planned
from tests.conftest import MIB, Make

CHUNK = 32 << 10
LARGEST = 4 << 10


def addresses(allocator: allocators.Allocator, size: int, count: int) -> list[int]:
    return [allocator.allocate(size) for _ in range(count)]


def test_the_lowest_free_block_of_the_size_is_reused(make: Make) -> None:
    allocator = make("planned")
    blocks = addresses(allocator, 1000, 40)  # 32 in a chunk
    assert blocks == [blocks[0] + 1024 * number for number in range(40)]
    for number in (35, 3, 20):
        allocator.deallocate(blocks[number])
    assert addresses(allocator, 600, 4) == [blocks[3], blocks[20], blocks[35], blocks[39] + 1024]


def test_sizes_share_no_chunk_until_one_is_empty(make: Make) -> None:
    allocator = make("planned:page=2MiB")
    chunks = PAGE // CHUNK
    blocks = addresses(allocator, LARGEST, chunks * CHUNK // LARGEST)
    assert allocator.stats().reserved == PAGE
    for block in blocks[: CHUNK // LARGEST]:
        allocator.deallocate(block)
    assert allocator.allocate(512) == blocks[0]
    assert allocator.stats().reserved == PAGE
    assert allocator.allocate(LARGEST) == blocks[0] + PAGE  # a new page
    allocator.check()


def test_another_stream_has_its_small_blocks_in_pools(make: Make) -> None:
    allocator = make("planned")
    first, other = allocator.allocate(512, stream=1), allocator.allocate(512, stream=2)
    assert abs(first - other) > MIB
    allocator.deallocate(first, stream=2)
    assert allocator.allocate(512, stream=1) != first
    allocator.check()
    allocator.step()
    allocator.allocate(PAGE, stream=1)
    assert allocator.allocate(512, stream=1) == first
    allocator.check()


def test_a_page_of_small_blocks_is_given_up_for_a_large_one() -> None:
    watched = planned("16MiB")
    block = get(watched, 512)
    assert watched.allocate(16 * MIB) is None
    watched.free(block)
    assert watched.allocate(16 * MIB) is not None


def test_a_small_block_that_waits_is_waited_for_when_the_device_is_full(make: Make) -> None:
    allocator = make("planned", "16MiB")
    allocator.deallocate(allocator.allocate(512, stream=1), stream=2)
    assert allocator.allocate(16 * MIB, stream=1)


def test_a_full_device_serves_small_blocks_from_the_pools(make: Make) -> None:
    allocator = make("planned", "4MiB")
    block = allocator.allocate(MIB // 2)
    allocator.allocate(3 * MIB // 2)
    assert allocator.stats().reserved == 4 * MIB
    calls = allocator.device.stats().calls
    assert allocator.allocate(512) == block + MIB // 2
    assert allocator.device.stats().calls == calls


def test_an_address_inside_a_chunk_is_no_block(make: Make) -> None:
    allocator = make("planned")
    block = allocator.allocate(2048)
    for address in (block + 1, block + 512, block + 2048, block + CHUNK):
        with pytest.raises(allocators.BadFree):
            allocator.deallocate(address)
    allocator.deallocate(block)
    with pytest.raises(allocators.BadFree):
        allocator.deallocate(block)


@pytest.mark.parametrize("seed", range(2))
def test_small_blocks_never_overlap(seed: int) -> None:
    draw = random.Random(seed)
    watched = planned("24MiB", "planned:page=2MiB")
    alive: list[int] = []
    for _ in range(1500):
        if draw.random() < 0.01:
            watched.step()
        if draw.random() < 0.01:
            watched.trim()
        if alive and draw.random() < 0.48:
            watched.free(alive.pop(draw.randrange(len(alive))))
        elif (
            block := watched.allocate(draw.choice([1, 512, 700, 3000, 4096, 5000, MIB]))
        ) is not None:
            alive.append(block)
    watched.allocator.check()
    for block in alive:
        watched.free(block)
    watched.trim()
    assert watched.allocator.stats().reserved == 0
