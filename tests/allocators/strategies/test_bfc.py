# SPDX-License-Identifier: Apache-2.0
"""bfc: limits and boundaries of TensorFlow's rules; its placements are in test_placements.py."""

import math
import random
from bisect import insort
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from allocbench import allocators
from tests.allocators.strategies.seen import blocks, granted, segments
from tests.conftest import GIB, MIB, Make


def with_free_chunks(allocator: allocators.Allocator, sizes: list[int]) -> list[int]:
    """Creates free chunks of these sizes in address order, each between two chunks in use."""
    chunks = []
    for size in sizes:
        chunks.append(allocator.allocate(size))
        allocator.allocate(256)
    for chunk in chunks:
        allocator.deallocate(chunk)
    return chunks


@pytest.mark.parametrize("wanted", [[8192], range(8192, 8448), range(256, 16384)])
def test_many_free_chunks_of_similar_sizes_are_searched_in_order(
    make: Make, wanted: Sequence[int]
) -> None:
    """Beside a search of all chunks, while hundreds of them are in a bin and again few of them."""
    allocator = make("bfc:allow_growth=false,memory_limit=64MiB")
    start = allocator.allocate(1)
    allocator.deallocate(start)
    drawn = random.Random(len(wanted))
    chunks = [(start, 64 * MIB)]  # the free ones, by address
    live: dict[int, int] = {}
    for target in (1000, 0, 1000, 20, 400, 0):
        while len(live) != target:
            if len(live) < target or drawn.random() < 0.2:
                size = 256 * math.ceil(drawn.choice(wanted) / 256)
                best = min((chunk for chunk in chunks if chunk[1] >= size), key=lambda c: c[::-1])
                chunks.remove(best)
                address, whole = best
                assert allocator.allocate(size) == address
                live[address] = size if whole >= 2 * size else whole
                if whole > live[address]:
                    insort(chunks, (address + size, whole - size))
            else:
                address = drawn.choice(list(live))
                insort(chunks, (address, live.pop(address)))
                allocator.deallocate(address)
                chunks = coalesced(chunks)
        allocator.check()


def coalesced(chunks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined = chunks[:1]
    for address, size in chunks[1:]:
        before, length = joined[-1]
        if before + length == address:
            joined[-1] = (before, length + size)
        else:
            joined.append((address, size))
    return joined


@pytest.mark.parametrize(("request_mib", "granted_mib"), [(172, 172), (173, 300)])
def test_a_rest_of_128_mib_is_split_off(make: Make, request_mib: int, granted_mib: int) -> None:
    allocator = make("bfc:allow_growth=false,memory_limit=300MiB")
    address = allocator.allocate(request_mib * MIB)
    assert granted(allocator, address) == granted_mib * MIB


@pytest.mark.parametrize(("request_", "granted_"), [(2816, 2816), (3072, 4096)])
def test_a_fraction_of_the_limit_is_split_off(make: Make, request_: int, granted_: int) -> None:
    # 0.001 of 1 MiB: a rest of 1048 bytes and more
    allocator = make("bfc:memory_limit=1MiB,fragmentation_fraction=0.001")
    (chunk,) = with_free_chunks(allocator, [4096])
    assert allocator.allocate(request_) == chunk
    assert granted(allocator, chunk) == granted_


def test_a_fraction_below_one_byte_always_splits(make: Make) -> None:
    allocator = make("bfc:memory_limit=1MiB,fragmentation_fraction=0.0000001")
    chunk, other = with_free_chunks(allocator, [1024, 512])
    assert allocator.allocate(768) == chunk
    assert allocator.allocate(512) == other
    assert blocks(allocator)[0][:4] == [768, -256, 256, 512]


FIRST_CUTS = [16000000000, 14400000000, 12960000000, 11664000000, 10497599488]


def cuts(size: int) -> list[int]:
    """The sizes requested after refusals: 90% in float32, rounded up to 256."""
    result = [size]
    while len(result) < 200 and (len(result) < 2 or result[-1] != result[-2]):
        less = int(np.float32(result[-1]) * np.float32(0.9))
        result.append(-(-less // 256) * 256)
    return result[:-1]


def test_a_refused_region_is_reduced_by_10_percent_in_float32(make: Make) -> None:
    sequence = cuts(16000000000)
    assert sequence[:5] == FIRST_CUTS
    assert 7652749824 in sequence
    for asked, less in pairwise(sequence[:41]):
        spec = "bfc:allow_growth=false,memory_limit=16000000000"
        exact, lacking = make(spec, asked), make(spec, asked - 1)
        exact.allocate(1)
        lacking.allocate(1)
        assert segments(exact) == [asked]
        assert segments(lacking) == [less]
        calls = sequence.index(asked)
        assert exact.device.stats().refused_calls == calls
        assert lacking.device.stats().refused_calls == calls + 1


def test_a_cut_below_the_request_ends_the_search(make: Make) -> None:
    allocator = make("bfc:allow_growth=false,memory_limit=16000000000", 11 * 10**9)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(10497599488 + 1)
    assert allocator.device.stats().malloc_calls == 4
    allocator.allocate(10497599488)
    assert segments(allocator) == [10497599488]


@pytest.mark.parametrize("size", [1, 256, 2304, 2305])
def test_a_small_request_to_a_full_device_ends(make: Make, size: int) -> None:
    allocator = make("bfc:memory_limit=1MiB", "1MiB", fail_above=0)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(size)
    assert cuts(2304) == [2304]


def test_garbage_collection_returns_all_idle_regions(make: Make) -> None:
    allocator = make("bfc:memory_limit=8MiB,garbage_collection=true")
    for address in [allocator.allocate(2 * MIB), allocator.allocate(4 * MIB)]:
        allocator.deallocate(address)
    assert segments(allocator) == [2 * MIB, 4 * MIB]
    allocator.allocate(8 * MIB)
    assert segments(allocator) == [8 * MIB]
    assert allocator.stats().retries == 1
    assert allocator.device.stats().free_calls == 2


def test_garbage_collection_that_would_not_suffice_returns_nothing(make: Make) -> None:
    allocator = make("bfc:memory_limit=8MiB,garbage_collection=true")
    allocator.allocate(2 * MIB)
    allocator.deallocate(allocator.allocate(4 * MIB))
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(6 * MIB + 1)
    assert segments(allocator) == [2 * MIB, 4 * MIB]
    assert allocator.stats().retries == 0


def test_coalesced_regions_become_one(make: Make) -> None:
    allocator = make("bfc:coalesce_regions=true", alignment=4096)
    first, second = allocator.allocate(2 * MIB), allocator.allocate(4 * MIB)
    assert blocks(allocator) == [[2 * MIB, 4 * MIB]]
    allocator.deallocate(first)
    allocator.deallocate(second)
    assert blocks(allocator) == [[-6 * MIB]]
    assert allocator.allocate(6 * MIB) == first
    assert allocator.device.stats().malloc_calls == 2
    allocator.deallocate(first)
    allocator.trim()
    assert allocator.device.stats().free_calls == 2


def limit(make: Make, options: str, capacity: int) -> int:
    """The memory limit in bytes, rounded down to 256: the only region without growth."""
    allocator = make(f"bfc:allow_growth=false{options}", capacity)
    allocator.allocate(1)
    return sum(segments(allocator))


@pytest.mark.parametrize(
    ("capacity", "reserve"),
    [
        (GIB, 225 * MIB),
        (2 * GIB - 256, 225 * MIB),
        (2 * GIB, 300 * MIB),
        (5 * GIB, 300 * MIB),
        (80 * GIB, 4 * GIB),
        (225 * MIB, 0),  # nothing would be left
    ],
)
def test_the_system_reserve_matches_tensorflow(make: Make, capacity: int, reserve: int) -> None:
    assert limit(make, "", capacity) == capacity
    assert limit(make, ",system_reserve=true", capacity) == capacity - reserve


def test_the_memory_limit_can_be_a_fraction_of_the_capacity(make: Make) -> None:
    assert limit(make, ",per_process_memory_fraction=0.1", 10 * GIB) == GIB
    assert limit(make, ",per_process_memory_fraction=0.1,system_reserve=true", 10 * GIB) == GIB
