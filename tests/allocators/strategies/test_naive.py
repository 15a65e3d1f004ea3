# SPDX-License-Identifier: Apache-2.0
"""naive: one device call per request and per free, and no waste at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks
from tests.conftest import MIB

Make = Callable[..., allocators.Allocator]


def test_every_request_and_every_free_is_a_device_call(make: Make) -> None:
    allocator = make("naive")
    for count, size in enumerate((1, 1000, MIB), start=1):
        allocator.deallocate(allocator.allocate(size))
        calls = allocator.device.stats()
        assert (calls.malloc_calls, calls.free_calls) == (count, count)


def test_nothing_is_rounded_and_nothing_is_kept(make: Make) -> None:
    allocator = make("naive")
    addresses = [allocator.allocate(size) for size in (1, 1000, MIB + 1)]
    stats = allocator.stats()
    assert stats.requested == stats.allocated == stats.reserved == MIB + 1002
    assert blocks(allocator) == [[1], [1000], [MIB + 1]]
    for address in addresses:
        allocator.deallocate(address)
    assert allocator.stats().reserved == allocator.largest_free() == 0


def test_it_fills_a_device_to_the_last_byte(make: Make) -> None:
    allocator = make("naive", 1000)
    for size in (1, 99, 900):
        allocator.allocate(size)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(1)


def test_external_fragmentation_does_not_apply() -> None:
    assert not allocators.info("naive").keeps_free_blocks
