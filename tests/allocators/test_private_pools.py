# SPDX-License-Identifier: Apache-2.0
"""Private pools of strategies: their memory is apart, and stays until they are released."""

import time
from contextlib import suppress

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, TRIM, PrivatePool, Trace
from allocbench.workloads.vocabulary import (
    CAPTURE_BEGIN,
    CAPTURE_END,
    POOL_CREATE,
    POOL_ENTER,
    POOL_LEAVE,
    POOL_RELEASE,
)
from tests.traces import make

MIB = 1 << 20
GIB = 1 << 30


def replay(
    rows: list[tuple[int, int, int, int, int]], spec: str, *pools: PrivatePool, capacity: int = GIB
) -> tuple[list[tuple[int, int]], allocators.Allocator]:
    """Segment and offset of each alloc; rows are op, block, size, stream, pool."""
    columns = np.array(rows, np.uint64).T
    trace: Trace = make(
        [row[:3] for row in rows],
        stream=columns[3].astype(np.uint16),
        pool=columns[4].astype(np.uint16),
        pools=pools or (PrivatePool(),) * int(columns[4].max()),
        labels=("step",),
    )
    trace.validate()
    made = allocators.make(spec, allocators.SimulatedDevice(capacity))
    found = allocators.replay(trace, made, placements=True, keep=True).placements
    made.check()
    return list(zip(found["segment"].tolist(), found["offset"].tolist(), strict=True)), made


def test_a_free_finds_the_pool_of_its_block(name: str) -> None:
    """The pool of a free in a trace, and its stream, need not be those of the alloc."""
    rows = [(ALLOC, 0, MIB, 0, 1), (ALLOC, 1, MIB, 0, 0), (FREE, 0, 0, 0, 0), (FREE, 1, 0, 0, 1)]
    _, made = replay(rows, name, PrivatePool("0.1"))
    stats = made.stats()
    assert stats.frees == stats.allocations >= 1  # buddy's one region may leave nothing outside
    assert stats.requested == 0


def addresses(made: allocators.Allocator, *pools: int) -> list[int]:
    """Of a block of 1 MiB in each pool; the one before is freed first."""
    found = []
    for pool in pools:
        found.append(made.allocate(MIB, pool=pool))
        made.deallocate(found[-1], pool=pool)
    return found


@pytest.mark.parametrize("name", allocators.names())
@pytest.mark.parametrize("wrapped", ["{}", "check:of={}", "per_stream:of={}", "record:of={}"])
def test_every_strategy_keeps_the_memory_of_private_pools_apart(name: str, wrapped: str) -> None:
    device = allocators.SimulatedDevice(16 * GIB)
    made = allocators.make(wrapped.format(name), device)
    outside, first, second = (made.allocate(MIB, pool=pool) for pool in (0, 1, 2))
    made.check()
    assert made.stats().requested == 3 * MIB
    for address, pool in ((outside, 0), (first, 1), (second, 2)):
        made.deallocate(address, pool=pool)
    assert len({outside, first, second}) == 3
    reused = addresses(made, 1, 0, 2)
    if name != "bump" and allocators.info(name).keeps_free_blocks:
        assert reused == [first, outside, second]
    made.check()
    assert made.stats().requested == 0


@pytest.mark.parametrize("name", ["bfc", "caching", "expandable", "slab", "tlsf"])
def test_segments_of_a_private_pool_go_back_when_it_is_released(name: str) -> None:
    options = ":garbage_collection=true" if name == "bfc" else ""
    made = allocators.make(name + options, allocators.SimulatedDevice(GIB))
    made.pool_event(POOL_CREATE, 1)
    made.pool_event(CAPTURE_BEGIN, 1)
    addresses(made, 1)
    made.pool_event(CAPTURE_END, 1)
    held = made.stats().reserved
    assert held > 0
    for uses in (2, 1):
        made.trim()
        made.trim(1)
        assert made.stats().reserved == held, uses
        made.pool_event(POOL_RELEASE, 1)
    made.trim(1)
    assert made.stats().reserved == 0


@pytest.mark.parametrize("name", ["bfc", "caching", "tlsf"])
def test_a_pool_gets_memory_that_is_cached_outside_of_it(name: str) -> None:
    options = ":garbage_collection=true" if name == "bfc" else ""
    made = allocators.make(name + options, allocators.SimulatedDevice(32 * MIB))
    made.deallocate(made.allocate(24 * MIB))
    assert made.allocate(24 * MIB, pool=1) > 0
    assert made.stats().retries == 1
    made.check()
    with pytest.raises(allocators.OutOfMemory):
        made.allocate(24 * MIB)


@pytest.mark.parametrize(
    "spec",
    [
        "bfc:memory_limit=32MiB",
        "bfc:per_process_memory_fraction=0.5",
        "cupy_pool:memory_limit=32MiB",
        "rmm_pool:initial_pool_size=0,maximum_pool_size=32MiB",
        "rmm_pool:maximum_pool_size=32MiB",
    ],
)
@pytest.mark.parametrize("pools", [(0, 1, 2), (2, 1, 0)])
def test_a_limit_holds_for_all_pools_together(spec: str, pools: tuple[int, ...]) -> None:
    made = allocators.make(spec, allocators.SimulatedDevice(64 * MIB))
    for pool in pools * 20:
        with suppress(allocators.OutOfMemory):
            made.allocate(MIB, pool=pool)
        assert made.stats().reserved <= 32 * MIB
        made.check()
    assert made.stats().failures > 0


@pytest.mark.parametrize("inner", ["rmm_pool", "caching"])
def test_a_bin_serves_only_its_own_pool(inner: str) -> None:
    made = allocators.make(
        f"binning:smallest=256,largest=1KiB,of={inner}", allocators.SimulatedDevice(GIB)
    )
    made.pool_event(POOL_CREATE, 1)
    freed = made.allocate(1000, pool=1)
    made.deallocate(freed, pool=1)
    outside = {made.allocate(1000) for _ in range(200)}
    assert freed not in outside
    assert freed in {made.allocate(1000, pool=1) for _ in range(200)}
    made.check()


@pytest.mark.parametrize("op", [0, 3, 10])
def test_an_unknown_event_of_a_pool_is_refused(op: int) -> None:
    made = allocators.make("bfc", allocators.SimulatedDevice(GIB))
    with pytest.raises(ValueError, match="has an op from 4 to 9"):
        made.pool_event(op, 1)
    with pytest.raises(ValueError, match="a pool above 0"):
        made.pool_event(POOL_CREATE, 0)


def test_a_recording_wrapper_records_pools() -> None:
    made = allocators.make("record:of=bfc", allocators.SimulatedDevice(GIB))
    made.pool_event(POOL_CREATE, 2)
    made.deallocate(made.allocate(MIB, stream=3, pool=2), stream=4, pool=2)
    made.trim(2)
    found = allocators.recording(made)
    assert found.op.tolist() == [POOL_CREATE, ALLOC, FREE, TRIM]
    assert found.pool is not None
    assert found.pool.tolist() == [2, 2, 2, 2]
    assert found.stream.tolist() == [0, 3, 4, 0]
    assert len(found.pools) == 2


# What caching does, by version


def used_elsewhere(begin: int, end: int) -> list[tuple[int, int, int, int, int]]:
    """A block is freed on another stream inside of a pool; steps do not free it there."""
    step = (2, 0, 0, 0, 0)
    inside = [(ALLOC, 0, MIB, 0, 1), (FREE, 0, 0, 1, 0), step, (ALLOC, 1, MIB, 0, 1)]
    after = [(ALLOC, 2, MIB, 0, 0), (ALLOC, 3, MIB, 0, 1)]
    return [(begin, 0, 0, 0, 1), *inside, (end, 0, 0, 0, 1), *after]


@pytest.mark.parametrize("version", ["2.9", "2.12", "2.13"])
def test_a_block_used_on_another_stream_is_not_reused_during_a_capture(version: str) -> None:
    rows = used_elsewhere(CAPTURE_BEGIN, CAPTURE_END)
    found, _ = replay(rows, f"caching:version={version}")
    first, second, _, third = found
    assert second != first
    assert third == first


def test_from_2_13_on_a_memory_pool_is_no_capture() -> None:
    rows = used_elsewhere(POOL_ENTER, POOL_LEAVE)
    older, _ = replay(rows, "caching:version=2.12")
    newer, _ = replay(rows, "caching:version=2.13")
    assert older[1] != older[0]
    assert newer[1] == newer[0]


def test_no_memory_goes_back_to_the_device_during_a_capture() -> None:
    rows = [
        (ALLOC, 0, 24 * MIB, 0, 0),
        (FREE, 0, 0, 0, 0),
        (CAPTURE_BEGIN, 0, 0, 0, 1),
        (ALLOC, 1, 24 * MIB, 0, 1),
        (CAPTURE_END, 0, 0, 0, 1),
        (ALLOC, 2, 24 * MIB, 0, 1),
    ]
    found, made = replay(rows, "caching", capacity=32 * MIB)
    assert found[1] == (-1, -1)
    assert found[2] == (1, 0)
    assert (made.stats().failures, made.stats().retries) == (1, 1)


def lending(version: str, *, released: bool) -> tuple[tuple[int, int], int]:
    rows = [
        (POOL_CREATE, 0, 0, 0, 1),
        (POOL_ENTER, 0, 0, 0, 1),
        (ALLOC, 0, 24 * MIB, 0, 1),
        (FREE, 0, 0, 0, 0),
        (POOL_LEAVE, 0, 0, 0, 1),
        (POOL_RELEASE, 0, 0, 0, 1),
        *([(POOL_RELEASE, 0, 0, 0, 1)] if released else []),
        (ALLOC, 1, 24 * MIB, 0, 0),
    ]
    pool = PrivatePool("0.1", use_on_oom=True)
    found, made = replay(rows, f"caching:version={version}", pool, capacity=32 * MIB)
    return found[1], made.device.stats().refused_calls


def test_a_pool_lends_free_blocks_to_requests_that_would_fail() -> None:
    assert lending("2.10", released=False) == ((0, 0), 2)
    assert lending("2.11", released=False) == ((0, 0), 1)
    assert lending("2.13", released=True) == ((1, 0), 1)


def test_a_pool_without_splitting_gives_whole_segments_from_2_10_on() -> None:
    rows = [(ALLOC, 0, 512, 0, 1), (ALLOC, 1, 512, 0, 1)]
    pool = PrivatePool("0.1", no_split=True)
    assert replay(rows, "caching:version=2.9", pool)[0] == [(0, 0), (0, 512)]
    assert replay(rows, "caching:version=2.10", pool)[0] == [(0, 0), (1, 0)]


def test_refused_requests_of_many_pools_take_time_in_proportion_to_them() -> None:
    """Each pool keeps a part of a segment that no other pool can use, and the device is full."""

    def seconds(count: int) -> float:
        rows = [(ALLOC, number, 512, number, number + 1) for number in range(count)]
        begin = time.process_time()
        _, made = replay(rows, "caching", capacity=count * MIB)
        assert made.stats().failures == count // 2
        return time.process_time() - begin

    # A pair at a time: a machine that other programs use changes its speed between them, too.
    ratio = min(1 / seconds(1_000) * seconds(8_000) for _ in range(3))
    assert ratio < 24  # 8 in proportion, 64 in proportion to the square
