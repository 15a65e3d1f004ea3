# SPDX-License-Identifier: Apache-2.0
"""The superblocks of RMM's arena, where there are hundreds of them."""

import random

import pytest

from allocbench import allocators
from tests.conftest import MIB

GIB = 1024 * MIB


class LargeRequests:
    """The global arena for requests above 1 MiB, as RMM describes it; superblocks in a list."""

    def __init__(self, begin: int, size: int) -> None:
        self.superblocks = [(begin, size, [(begin, size)])]

    def allocate(self, size: int) -> int:
        for n, (begin, whole, free) in enumerate(self.superblocks):
            if max((length for _, length in free), default=0) < size:
                continue
            if free == [(begin, whole)] and whole >= size + MIB:
                rest = begin + size, whole - size
                self.superblocks.insert(n + 1, (*rest, [rest]))
                whole, free = size, [(begin, size)]
            place, (address, length) = next((p, f) for p, f in enumerate(free) if f[1] >= size)
            free[place : place + 1] = [(address + size, length - size)] if length > size else []
            self.superblocks[n] = begin, whole, free
            return address
        return 0

    def deallocate(self, address: int, size: int) -> None:
        n = max(n for n, (begin, *_) in enumerate(self.superblocks) if begin <= address)
        begin, whole, free = self.superblocks[n]
        merged: list[tuple[int, int]] = []
        for one in sorted([*free, (address, size)]):
            if merged and sum(merged[-1]) == one[0]:
                merged[-1] = merged[-1][0], merged[-1][1] + one[1]
            else:
                merged.append(one)
        self.superblocks[n] = begin, whole, merged
        for low in (n, n - 1):
            pair = self.superblocks[max(low, 0) : low + 2]
            if len(pair) == 2 and all(free == [(begin, size)] for begin, size, free in pair):
                joined = pair[0][0], pair[0][1] + pair[1][1]
                self.superblocks[low : low + 2] = [(*joined, [joined])]


@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_superblocks_serve_large_requests_at_the_lowest_address(seed: int) -> None:
    drawn = random.Random(seed)
    device = allocators.SimulatedDevice(8 * GIB)
    arena = allocators.make("rmm_arena", device)
    first = arena.allocate(4 * GIB)
    arena.deallocate(first)
    model = LargeRequests(first, 4 * GIB)
    live: list[tuple[int, int]] = []
    most = 0
    for step in range(4000):
        size = 256 * drawn.randrange(2 * MIB // 256, 12 * MIB // 256)
        if len(live) < drawn.choice((300, 600)) and (address := model.allocate(size)):
            assert arena.allocate(size) == address
            live.append((address, size))
        elif live:
            address, size = live.pop(drawn.randrange(len(live)))
            model.deallocate(address, size)
            arena.deallocate(address)
        most = max(most, len(model.superblocks))
        if step % 500 == 0:
            arena.check()
    assert most > 300
