# SPDX-License-Identifier: Apache-2.0
"""XLA's allocator for virtual memory: which freed block serves a request, and which go back."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks, segments
from tests.conftest import MIB, Make

PAGE = 2 * MIB


def test_each_block_has_memory_of_its_own_in_whole_pages(make: Make) -> None:
    allocator = make("xla_vmm")
    for size in (1, PAGE, PAGE + 1):
        allocator.allocate(size)
    assert segments(allocator) == [PAGE, PAGE, 2 * PAGE]
    calls = allocator.device.stats()
    assert (calls.map_calls, calls.malloc_calls) == (3, 0)


def test_a_freed_block_serves_only_requests_of_as_many_pages(make: Make) -> None:
    allocator = make("xla_vmm")
    first, second = allocator.allocate(3 * MIB), allocator.allocate(4 * MIB)
    allocator.deallocate(second)
    allocator.deallocate(first)
    assert allocator.allocate(2 * MIB) not in (first, second)
    assert [allocator.allocate(3 * MIB), allocator.allocate(3 * MIB)] == [second, first]


def test_when_memory_is_short_what_the_gpu_has_reached_goes_back(make: Make) -> None:
    allocator = make("xla_vmm", 100 * MIB)
    before, after = [allocator.allocate(10 * MIB) for _ in range(2)], allocator.allocate(40 * MIB)
    for block in before:
        allocator.deallocate(block)
    allocator.step()
    allocator.deallocate(after)
    allocator.allocate(44 * MIB)  # 40 MiB are left: both blocks of the earlier step
    assert blocks(allocator) == [[-40 * MIB], [44 * MIB]]


def test_then_the_oldest_blocks_go_back_until_they_have_a_tenth_more(make: Make) -> None:
    allocator = make("xla_vmm", 100 * MIB)
    freed = [allocator.allocate(size * MIB) for size in (12, 8, 2, 40, 30)]
    for block in freed:
        allocator.deallocate(block)
    allocator.allocate(20 * MIB)  # 8 MiB are left; 12 + 8 is less than 22
    assert blocks(allocator) == [[-40 * MIB], [-30 * MIB], [20 * MIB]]
    assert allocator.stats().retries == 1
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(82 * MIB)
    assert segments(allocator) == [20 * MIB]


def test_at_most_a_fraction_of_the_device_is_mapped(make: Make) -> None:
    allocator = make("xla_vmm:memory_fraction=0.75", 100 * MIB)
    allocator.allocate(74 * MIB)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(2 * MIB)


@dataclass
class Model:
    """The rules once more, with a list. A buffer is a number; the GPU reaches what is freed."""

    most: int
    live: dict[int, int] = field(default_factory=dict)
    queue: list[tuple[int, int]] = field(default_factory=list)  # buffer, bytes
    reached: int = 0  # how many of the queue
    names: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def mapped(self) -> int:
        return sum(self.live.values()) + sum(size for _, size in self.queue)

    def allocate(self, requested: int) -> int | None:
        size = -(-requested // PAGE) * PAGE
        for place, (buffer, other) in enumerate(self.queue):
            if other == size:
                del self.queue[place]
                self.reached -= place < self.reached
                self.live[buffer] = size
                return buffer
        if self.mapped + size > self.most:
            del self.queue[: self.reached]
            self.reached = 0
        if self.mapped + size > self.most:
            returned = 0
            while self.queue and returned < size + size // 10:
                returned += self.queue.pop(0)[1]
        if self.mapped + size > self.most:
            return None
        buffer = next(self.names)
        self.live[buffer] = size
        return buffer

    def free(self, buffer: int) -> None:
        self.queue.append((buffer, self.live.pop(buffer)))


@pytest.mark.parametrize("seed", range(20))
def test_every_block_is_where_a_model_has_it(make: Make, seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.randrange(1, 20 * MIB) for _ in range(12)]
    allocator, model = make("xla_vmm", 200 * MIB), Model(200 * MIB)
    live: list[tuple[int, int]] = []
    address_of: dict[int, int] = {}
    failed = 0
    for _ in range(2000):
        kind = draw.random()
        if kind < 0.05:
            allocator.step()
            model.reached = len(model.queue)
        elif kind < 0.5 and live:
            address, buffer = live.pop(draw.randrange(len(live)))
            allocator.deallocate(address)
            model.free(buffer)
        else:
            size = draw.choice(sizes)
            expected = model.allocate(size)
            if expected is None:
                failed += 1
                with pytest.raises(allocators.OutOfMemory):
                    allocator.allocate(size)
            else:
                address = allocator.allocate(size)
                assert address_of.setdefault(expected, address) == address
                live.append((address, expected))
        assert allocator.stats().reserved == model.mapped
    assert failed
    assert len(address_of) > len(sizes)
