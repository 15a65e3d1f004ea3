# SPDX-License-Identifier: Apache-2.0
"""The work of a request and a free, in search steps, as the number of blocks grows."""

import math
import random

import numpy as np
import pytest

from allocbench import allocators

NUMBERS = (10**3, 10**4, 10**5)
SIZES = ((1000, 1001), (256, 1 << 20))
CONSTANT = ["free_lists", "slab", "tlsf"]
LOGARITHMIC = ["bfc", "buddy", "caching", "expandable"]
SPECS = {"free_lists": "free_lists:buffer=64MiB", "buddy": "buddy:region=64MiB"}


def steps_of_an_operation(name: str, blocks: int, sizes: tuple[int, int]) -> float:
    """Search steps per alloc or free, the mean of 4000, with `blocks` live and as many free blocks.

    Sizes are drawn log-uniformly. No two free blocks are neighbors at first.
    """
    device = allocators.SimulatedDevice(2**50)
    allocator = allocators.make(SPECS.get(name, name), device)
    drawn = random.Random(blocks)
    low, high = map(math.log, sizes)
    live = [allocator.allocate(int(math.exp(drawn.uniform(low, high)))) for _ in range(2 * blocks)]
    for address in live[::2]:
        allocator.deallocate(address)
    live = live[1::2]
    before = allocator.counters()["search_steps"]
    for _ in range(2000):
        position = drawn.randrange(len(live))
        allocator.deallocate(live[position])
        live[position] = allocator.allocate(int(math.exp(drawn.uniform(low, high))))
    return (allocator.counters()["search_steps"] - before) / 4000


@pytest.mark.parametrize("sizes", SIZES, ids=["one size", "many sizes"])
@pytest.mark.parametrize("name", CONSTANT)
def test_constant_search_steps_do_not_grow_with_the_blocks(
    name: str, sizes: tuple[int, int]
) -> None:
    assert all(steps_of_an_operation(name, blocks, sizes) < 1 for blocks in NUMBERS)


@pytest.mark.parametrize("sizes", SIZES, ids=["one size", "many sizes"])
@pytest.mark.parametrize("name", LOGARITHMIC)
def test_logarithmic_search_steps_grow_no_faster(name: str, sizes: tuple[int, int]) -> None:
    result = [steps_of_an_operation(name, blocks, sizes) for blocks in NUMBERS]
    bounds = [4 * math.log2(blocks) for blocks in NUMBERS]
    assert all(steps <= bound for steps, bound in zip(result, bounds, strict=True)), result
    assert result[-1] > 1, "an index of so many blocks cannot be searched in a step"


# -- blocks at addresses with the same hash are found as fast as others

GOLDEN = 0x9E3779B97F4A7C15  # the factor of the hash, until too many addresses collide
HOME_BITS = 12
BLOCK = 1024
BLOCKS = 2000


def test_addresses_with_the_same_hash() -> None:
    """The best of three, because a hash drawn at random can be bad: 1 of 400 exceeded the limit."""
    assert min(steps_of_a_hash() for _ in range(3)) < 20 * BLOCKS


def steps_of_a_hash() -> int:
    """The search steps for blocks whose addresses collide until the table draws another hash."""
    pool = allocators.make("rmm_pool", allocators.SimulatedDevice("80GiB"))
    gaps = np.arange(1, 8 << HOME_BITS, dtype=np.uint64) * np.uint64(BLOCK)
    address = pool.allocate(BLOCK)
    colliding = []
    for _ in range(BLOCKS):
        home = (np.uint64(address) + gaps) * np.uint64(GOLDEN) >> np.uint64(64 - HOME_BITS)
        gap = int(gaps[int(np.argmin(home))])
        if gap > BLOCK:
            pool.allocate(gap - BLOCK)
        address += gap
        assert pool.allocate(BLOCK) == address, "blocks follow each other"
        colliding.append(address)
    for address in colliding:
        pool.deallocate(address)
    pool.check()
    return pool.counters()["search_steps"]
