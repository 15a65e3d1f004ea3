# SPDX-License-Identifier: Apache-2.0
"""naive: one device call per request and per free, and no waste at all."""

import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks
from tests.conftest import MIB, Make


def test_every_request_is_a_device_call_of_its_bytes_and_nothing_is_kept(make: Make) -> None:
    allocator = make("naive", MIB + 1002)
    addresses = [allocator.allocate(size) for size in (1, 1000, MIB + 1)]
    stats = allocator.stats()
    assert stats.requested == stats.allocated == stats.reserved == MIB + 1002
    assert blocks(allocator) == [[1], [1000], [MIB + 1]]
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(1)
    for address in addresses:
        allocator.deallocate(address)
    assert allocator.stats().reserved == allocator.largest_free() == 0
    calls = allocator.device.stats()
    assert (calls.malloc_calls, calls.free_calls) == (4, 3)
    assert not allocators.info("naive").keeps_free_blocks
