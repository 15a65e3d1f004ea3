# SPDX-License-Identifier: Apache-2.0
"""The requirements on every strategy, tested with its defaults and in variants.

Exemptions are declared by the strategy: the largest request that it must serve, and why that is
less than the capacity. The random walk over all calls is in
`test_state_machine.py`.
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from tests.conftest import GIB, MIB, Case
from tests.oracle import Judge, Watched
from tests.traces import make as trace_of

EDGES = (1, 2, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4096, MIB - 1, MIB, MIB + 1)


def drift(watched: Watched, seed: int, calls: int = 150, top: int = 4 * MIB) -> None:
    """Random requests and frees, with a few steps and trims."""
    rng = random.Random(seed)
    for _ in range(calls):
        draw = rng.random()
        if draw < 0.55 or not watched.live:
            watched.allocate(rng.choice(EDGES) if draw < 0.2 else int(top ** rng.random()))
        elif draw < 0.94:
            watched.free(rng.choice(watched.live))
        elif draw < 0.97:
            watched.step()
        else:
            watched.trim()


def in_steps(seed: int, steps: int = 4) -> Trace:
    """A synthetic program with nearly equal steps, which sometimes keeps a block."""
    rng = random.Random(seed)
    sizes = [int((8 * MIB) ** rng.random()) for _ in range(40)]
    events, kept, block = [], [], 0
    for _ in range(steps):
        events.append((MARK, 0, 0))
        alive: list[int] = []
        for size in sizes:
            events.append((ALLOC, block, size if rng.random() < 0.9 else size + 1000))
            alive.append(block)
            block += 1
            if rng.random() < 0.4:
                events.append((FREE, alive.pop(rng.randrange(len(alive))), 0))
        kept.append(alive.pop())
        events += [(FREE, gone, 0) for gone in alive]
    return trace_of([*events, *((FREE, gone, 0) for gone in kept)], labels=("step",))


def on_ample_device(case: Case, trace: Trace) -> tuple[allocators.Allocator, dict[str, Any]]:
    """A replay on a device with 128 GiB more than twice the bytes requested: nothing may fail."""
    device = allocators.SimulatedDevice(2 * int(trace.size.sum()) + 128 * GIB)
    allocator = allocators.make(case.spec, device)
    result = allocators.replay(trace, allocator, samples=10, placements=True)
    assert result.stats.failures == 0 or case.most is not None
    assert result.max_load == trace.max_load
    return allocator, result.placements


# -- the requirements


def test_small_and_odd_sizes_are_served_and_a_full_device_keeps_the_rules(case: Case) -> None:
    watched, full = (
        case.make(),
        case.make(20 * MIB),
    )  # after each call, the judge looks at all rules
    assert None not in [watched.allocate(size) for size in EDGES]
    for size in (*EDGES, 3 * MIB, 5 * MIB, 9 * MIB, 30 * MIB) * 2:
        full.allocate(size)


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_keep_the_rules_and_everything_can_go_back(case: Case, seed: int) -> None:
    watched = case.make()
    drift(watched, seed)
    snapshot = watched.allocator.snapshot()
    assert snapshot == sorted(snapshot, key=lambda segment: segment.address)
    for segment in snapshot:
        assert all(block.allocated == (block.requested > 0) for block in segment.blocks)
    watched.free_all()
    watched.trim()
    assert watched.allocator.stats().reserved == 0
    assert watched.allocator.snapshot() == []
    assert watched.allocate(case.largest_request(64 * MIB)) is not None


def test_a_double_or_foreign_free_raises_and_changes_nothing(case: Case) -> None:
    watched = case.make()
    kept, freed = watched.allocate(5000), watched.allocate(5000)
    assert kept is not None
    assert freed is not None
    gone, begin = watched.free(freed), watched.address(kept)
    for address in (gone, begin + 1, begin + 256, begin - 1, 1, 2**64 - 1):
        before = state(watched.allocator)
        with pytest.raises(allocators.BadFree, match=f"0x{address:x}"):
            watched.allocator.deallocate(address)
        assert state(watched.allocator) == before
        watched.verify()
    other = allocators.make(case.spec, allocators.SimulatedDevice("1GiB"))
    with pytest.raises(allocators.BadFree):
        other.deallocate(begin)
    watched.free(kept)


def test_a_request_over_capacity_fails_and_a_later_small_one_succeeds(case: Case) -> None:
    watched = case.make()
    sizes = (64 * MIB + 1, GIB, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 256, 2**64 - 1)
    for size in sizes:
        with pytest.raises(allocators.OutOfMemory, match=f"{size} bytes"):
            watched.allocator.allocate(size)
        watched.judge.fail()
        small = watched.allocate(1)
        assert small is not None
        watched.free(small)
    assert watched.allocator.stats().failures == len(sizes)


@pytest.mark.parametrize("capacity", [64 * MIB, 64 * MIB - 1, 48 * MIB + 12345, MIB, 4097, 1024])
def test_a_request_that_fits_in_an_empty_device_succeeds(name: str, capacity: int) -> None:
    case = Case(name)
    largest = case.largest_request(capacity)
    assert largest == capacity or case.info.exemption
    for size in {1, largest // 2 + 1, largest - 1, largest}:
        if not 0 < size <= largest:
            continue
        watched = case.make(capacity)
        assert watched.allocate(size) is not None


def test_a_fitting_request_succeeds_in_every_variant(case: Case) -> None:
    largest = case.largest_request(64 * MIB)
    for size in (1, 5 * MIB, largest - 1, largest):
        assert case.make(64 * MIB).allocate(size) is not None


def test_the_same_trace_gets_the_same_addresses(case: Case) -> None:
    trace = in_steps(10)
    (first, once), (second, again) = (on_ample_device(case, trace) for _ in range(2))
    for column, values in once.items():
        np.testing.assert_array_equal(values, again[column])
    assert state(first) == state(second)


def test_zero_bytes_give_null_and_one_byte_gives_a_block(case: Case) -> None:
    watched = case.make()
    assert watched.allocator.allocate(0) == 0
    watched.allocator.deallocate(0)
    watched.verify()
    assert watched.allocator.stats().allocations == watched.allocator.stats().frees == 0
    blocks = [watched.allocate(1) for _ in range(20)]
    assert None not in blocks
    watched.free_all()


@pytest.mark.parametrize("seed", range(2))
def test_every_synthetic_program_replays(case: Case, seed: int) -> None:
    trace = in_steps(seed)
    allocator, placements = on_ample_device(case, trace)
    judge_placements(trace, placements, case.alignment)
    allocator.check()


PAIRS = [
    (name, workload)
    for place, name in enumerate(allocators.names())
    for number, workload in enumerate(catalog.names())
    if (place + number) % 3 == 0
]


@pytest.mark.parametrize(("name", "workload"), PAIRS)
def test_every_strategy_replays_a_third_of_the_workloads(name: str, workload: str) -> None:
    allocator, placements = on_ample_device(Case(name), load(workload))
    assert (placements["size"] >= load(workload).size[load(workload).op == ALLOC]).all()
    allocator.check()
    allocator.trim()
    assert allocator.device.reserved == 0


def test_an_unknown_name_raises_and_the_message_lists_the_valid_ones() -> None:
    with pytest.raises(allocators.SpecError) as caught:
        allocators.make("no_such_strategy", allocators.SimulatedDevice("1GiB"))
    assert all(name in str(caught.value) for name in allocators.names())


# -- helpers


def state(allocator: allocators.Allocator) -> object:
    """Everything that a caller can see, except search steps, to which a snapshot adds."""
    stats = allocator.stats()
    counted = [getattr(stats, field) for field in dir(stats) if not field.startswith("_")]
    segments = [
        (s.address, s.size, [(b.address, b.size, b.requested) for b in s.blocks])
        for s in allocator.snapshot()
    ]
    counters = {
        name: index for name, index in allocator.counters().items() if name != "search_steps"
    }
    return counted, segments, allocator.device.reserved, counters


def judge_placements(trace: Trace, placements: dict[str, Any], alignment: int) -> None:
    """Asks the judge after every event; segments differ in the high half of an address."""
    judge = Judge(1 << 62, alignment)
    rows: Iterator[tuple[int, int, int]] = zip(
        *(placements[column].tolist() for column in ("segment", "offset", "size")), strict=True
    )
    events = zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    for op, block, size in events:
        if op == ALLOC:
            segment, offset, granted = next(rows)
            if granted:
                judge.alloc(block, size, ((segment + 1) << 64) + offset, granted)
        elif op == FREE and block in judge.live:
            judge.free(block)
        assert judge.blocks_broken() == []


@cache
def load(workload: str) -> Trace:
    return catalog.load(workload)
