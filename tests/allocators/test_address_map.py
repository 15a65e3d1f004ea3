# SPDX-License-Identifier: Apache-2.0
"""Blocks at addresses with the same hash are found as fast as others."""

from __future__ import annotations

import numpy as np

from allocbench import allocators

GOLDEN = 0x9E3779B97F4A7C15  # the factor of the hash, until too many addresses collide
HOME_BITS = 12
BLOCK = 1024
BLOCKS = 2000


def test_addresses_with_the_same_hash() -> None:
    """The best of three, because a hash drawn at random can be bad: 1 of 400 exceeded the limit."""
    assert min(search_steps() for _ in range(3)) < 20 * BLOCKS


def search_steps() -> int:
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
