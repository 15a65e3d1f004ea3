# SPDX-License-Identifier: Apache-2.0
"""What is special about RMM's pool and arena, and about CuPy's pool."""

import pytest

from allocbench import allocators
from tests.conftest import MIB, Case


def test_the_pool_starts_with_half_of_the_memory_available_and_doubles() -> None:
    watched = Case("rmm_pool").make(64 * MIB)
    watched.allocate(1)
    assert watched.allocator.stats().reserved == 32 * MIB
    watched = Case("rmm_pool:initial_pool_size=0").make(64 * MIB)
    for size, reserved in ((MIB, 1), (MIB, 2), (MIB, 4), (6 * MIB, 10)):
        watched.allocate(size)
        assert watched.allocator.stats().reserved == reserved * MIB


def test_with_a_maximum_the_pool_grows_by_half_of_the_rest() -> None:
    watched = Case("rmm_pool:initial_pool_size=2MiB,maximum_pool_size=10MiB").make(64 * MIB)
    watched.allocate(2 * MIB)
    watched.allocate(MIB)
    assert watched.allocator.stats().reserved == 6 * MIB
    assert watched.allocate(5 * MIB) is None
    assert watched.allocate(4 * MIB) is not None
    assert watched.allocator.stats().reserved == 10 * MIB


def test_a_stream_takes_a_block_of_another_one_before_the_pool_grows() -> None:
    watched = Case("rmm_pool:initial_pool_size=4MiB").make(64 * MIB)
    blocks = [watched.allocate(MIB, stream=1) for _ in range(4)]
    addresses = [watched.address(block) for block in blocks if block is not None]
    for address in addresses[1:3]:  # not coalesced: they are free for different streams
        watched.allocator.deallocate(address, stream=1 if address == addresses[1] else 2)
    assert watched.allocator.largest_free() == MIB
    assert watched.allocator.allocate(2 * MIB, stream=3) == addresses[1]
    assert watched.allocator.stats().reserved == 4 * MIB


def test_the_arena_keeps_the_superblock_of_a_stream_until_a_request_fails() -> None:
    allocator = Case("rmm_arena:arena_size=4MiB").make(64 * MIB).allocator
    kept = allocator.allocate(256, stream=1)
    for address in [allocator.allocate(256, stream=stream) for stream in (2, 3, 4)]:
        allocator.deallocate(address, stream=1)
    assert allocator.stats().retries == 0
    assert allocator.allocate(3 * MIB, stream=5) == kept + MIB
    assert allocator.stats().retries == 1


def test_a_request_beyond_the_arena_fails_although_the_device_has_room() -> None:
    watched = Case("rmm_arena").make(64 * MIB)
    assert watched.allocate(32 * MIB + 1) is None
    assert watched.allocate(32 * MIB) is not None


def test_cupy_obtains_exactly_what_it_needs_and_returns_it_when_the_device_is_full() -> None:
    watched = Case("cupy_pool").make(8 * MIB)
    block = watched.allocate(5 * MIB + 1)
    assert block is not None
    assert watched.allocator.stats().reserved == 5 * MIB + 512
    watched.free(block)
    assert watched.allocate(6 * MIB) is not None
    stats, calls = watched.allocator.stats(), watched.allocator.device.stats()
    assert (stats.retries, stats.reserved, calls.refused_calls) == (1, 6 * MIB, 1)
    assert watched.allocate(3 * MIB) is None
    assert watched.allocator.device.stats().refused_calls == 1 + 3


LIMIT = "cupy_pool:memory_limit=1GiB"


@pytest.mark.parametrize(("spec", "capacity"), [(LIMIT, "80GiB"), ("cupy_pool", "1GiB")])
def test_a_segment_of_cupy_with_a_live_block_stays(spec: str, capacity: str) -> None:
    pool = allocators.make(spec, allocators.SimulatedDevice(capacity))
    pool.deallocate(pool.allocate(512 * MIB))
    first = pool.allocate(768 * MIB)  # in place of the free segment
    assert (pool.stats().reserved, pool.stats().retries) == (768 * MIB, 1)
    pool.deallocate(first)
    pool.allocate(MIB)
    with pytest.raises(allocators.OutOfMemory):
        pool.allocate(768 * MIB)
    assert pool.stats().reserved == 768 * MIB


def test_segments_of_other_streams_of_cupy_are_returned_too() -> None:
    pool = allocators.make(LIMIT, allocators.SimulatedDevice("80GiB"))
    pool.deallocate(pool.allocate(1024 * MIB, 1), 1)
    pool.allocate(512, 2)
    assert pool.stats().reserved == 512


def test_cupy_keeps_streams_apart() -> None:
    watched = Case("cupy_pool").make(64 * MIB)
    block = watched.allocate(MIB, stream=1)
    assert block is not None
    watched.allocator.deallocate(watched.address(block), stream=2)
    assert watched.allocator.allocate(MIB, stream=2) != watched.address(block)
    assert watched.allocator.allocate(MIB, stream=1) == watched.address(block)


def test_cupy_fails_at_its_limit_without_a_device_call() -> None:
    watched = Case("cupy_pool:memory_limit=4MiB").make(64 * MIB)
    assert watched.allocate(5 * MIB) is None
    assert watched.allocator.device.stats().malloc_calls == 0


def test_presets_change_the_defaults_and_an_option_wins() -> None:
    def first_region(spec: str) -> int:
        watched = Case(spec).make(64 * MIB)
        watched.allocate(1)
        return watched.allocator.stats().reserved

    assert first_region("bfc") == 2 * MIB
    assert first_region("bfc:preset=onnxruntime") == MIB
    assert first_region("bfc:preset=onnxruntime,first_region=3MiB") == 3 * MIB
    assert first_region("bfc:preset=jax") == 48 * MIB
    assert first_region("bfc:preset=jax,allow_growth=true") == 2 * MIB
    assert first_region("bfc:preset=jax,per_process_memory_fraction=0.5") == 32 * MIB


def test_binning_serves_small_requests_from_chunks_of_128_blocks() -> None:
    spec = "binning:smallest=1KiB,largest=2KiB,of=rmm_pool:initial_pool_size=0"
    watched = Case(spec).make(64 * MIB)
    watched.allocate(1025)
    assert watched.allocator.stats().allocated == 2048
    assert watched.allocator.stats().reserved == 128 * 3 * 1024
    block = watched.allocate(4096)
    assert block is not None
    assert watched.allocator.stats().allocated == 2048 + 4096
    for _ in range(128):
        watched.allocate(2048)
    assert watched.allocator.stats().allocated == 2048 + 4096 + 128 * 2048
    watched.verify()
