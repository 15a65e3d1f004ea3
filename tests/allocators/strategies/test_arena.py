# SPDX-License-Identifier: Apache-2.0
"""arena: the first step is planned; later steps are served from the plan or fall back."""

import random
from collections.abc import Sequence

import pytest

from tests.allocators.strategies.seen import segments
from tests.conftest import MIB, Case
from tests.oracle import Watched

STEP = (4 * MIB, 300, MIB, 7 * MIB, 5000)


def arena(capacity: int | str = "1GiB", **device: int) -> Watched:
    return Case("arena:segment=1MiB").make(capacity, **device)


def run_step(watched: Watched, sizes: Sequence[int] = STEP) -> list[int]:
    """A step whose blocks overlap in pairs and all die within it; returns their addresses."""
    watched.step()
    addresses = []
    last = None
    for size in sizes:
        block = watched.allocate(size)
        assert block is not None
        addresses.append(watched.address(block))
        if last is not None:
            watched.free(last)
        last = block
    assert last is not None
    watched.free(last)
    return addresses


def counts(watched: Watched) -> tuple[int, int]:
    counters = watched.allocator.counters()
    return counters["planned_requests"], counters["fallback_requests"]


def test_everything_falls_back_until_the_first_step_ends() -> None:
    watched = arena()
    watched.allocate(1000)
    run_step(watched)
    assert counts(watched) == (0, 1 + len(STEP))


def test_a_repeated_step_is_served_entirely_from_the_plan() -> None:
    watched = arena()
    run_step(watched)
    second, third = run_step(watched), run_step(watched)
    assert second == third
    assert counts(watched) == (2 * len(STEP), len(STEP))
    counters = watched.allocator.counters()
    assert counters["planned_bytes"] == 2 * sum(STEP)
    assert counters["fallback_bytes"] == sum(STEP)


def test_the_arena_has_the_size_of_the_plan_and_takes_one_call() -> None:
    watched = arena()
    run_step(watched)
    watched.step()
    before = watched.allocator.device.stats().malloc_calls
    run_step(watched)
    # At most 7 MiB and 5000 bytes, or 1 MiB and 7 MiB, are alive together: 8 MiB.
    assert segments(watched.allocator) == [8 * MIB]
    assert watched.allocator.device.stats().malloc_calls == before + 1
    for _ in range(5):
        run_step(watched)
    assert watched.allocator.device.stats().malloc_calls == before + 1


def test_memory_of_the_first_step_is_returned_when_the_plan_is_made() -> None:
    watched = arena()
    run_step(watched)
    assert segments(watched.allocator) != []
    watched.step()
    assert segments(watched.allocator) == []


@pytest.mark.parametrize(
    ("sizes", "planned"),
    [
        ((*STEP, 100, 200), 5),  # two requests more
        ((4 * MIB + 1, 300, MIB, 7 * MIB - 1000, 1), 4),  # a larger one, and two smaller ones
        ([2 * size for size in STEP], 0),
    ],
)
def test_a_request_that_the_plan_cannot_hold_falls_back(sizes: Sequence[int], planned: int) -> None:
    watched = arena()
    run_step(watched)
    run_step(watched, sizes)
    assert counts(watched) == (planned, len(STEP) + len(sizes) - planned)


def test_a_block_that_outlived_its_step_is_not_planned() -> None:
    watched = arena()
    watched.step()
    survivor, passing = watched.allocate(MIB), watched.allocate(2 * MIB)
    assert passing is not None
    watched.free(passing)
    watched.step()
    watched.allocate(MIB)
    watched.allocate(2 * MIB)
    assert counts(watched) == (1, 3)
    assert survivor in watched.live


def test_a_request_falls_back_if_its_place_is_occupied() -> None:
    watched = arena()
    run_step(watched, (MIB, 256))
    watched.step()
    survivor = watched.allocate(MIB)
    assert counts(watched) == (1, 2)
    watched.step()
    again = watched.allocate(MIB)
    assert counts(watched) == (1, 3)
    assert survivor is not None
    assert again is not None
    watched.free(survivor)
    watched.free(again)
    run_step(watched, (MIB, 256))
    assert counts(watched) == (3, 3)


def test_a_trim_between_steps_returns_the_arena_and_keeps_the_plan() -> None:
    watched = arena()
    run_step(watched)
    first = run_step(watched)
    watched.trim()
    assert segments(watched.allocator) == []
    second = run_step(watched)
    assert counts(watched) == (2 * len(STEP), len(STEP))
    moved = second[0] - first[0]
    assert moved != 0
    assert [address + moved for address in first] == second


def test_a_trim_keeps_an_arena_in_use() -> None:
    watched = arena()
    run_step(watched)
    watched.step()
    block = watched.allocate(4 * MIB)
    watched.trim()
    assert segments(watched.allocator) == [8 * MIB]
    assert block in watched.live


def test_the_arena_is_requested_at_most_once_per_step() -> None:
    watched = arena(fail_above=7 * MIB + 4096)
    run_step(watched)
    for step in range(1, 4):
        before = watched.allocator.device.stats().refused_calls
        run_step(watched)
        assert watched.allocator.device.stats().refused_calls == before + 1
        assert counts(watched) == (0, (step + 1) * len(STEP))


def test_an_idle_arena_is_returned_when_the_pool_needs_its_memory() -> None:
    watched = arena(16 * MIB)
    run_step(watched)
    run_step(watched)
    assert segments(watched.allocator) == [8 * MIB]
    assert watched.allocate(16 * MIB) is not None
    assert watched.allocator.stats().retries == 1


def test_a_refused_request_in_the_first_step_does_not_affect_the_plan() -> None:
    watched = arena(16 * MIB)
    watched.step()
    assert watched.allocate(17 * MIB) is None
    block = watched.allocate(MIB)
    assert block is not None
    watched.free(block)
    watched.step()
    assert watched.allocate(MIB) is not None
    assert counts(watched) == (1, 1)


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_drift_never_corrupt(seed: int) -> None:
    rng = random.Random(seed)
    watched = arena("64MiB")
    sizes = [rng.choice((256, 700, 4096, MIB // 4, MIB)) for _ in range(25)]
    for _ in range(6):
        watched.step()
        for size in sizes:
            watched.allocate(max(1, size + rng.choice((0, 0, 0, -100, 300))))
            if rng.random() < 0.1:
                watched.allocate(rng.choice(sizes))
            if rng.random() < 0.8 and watched.live:
                watched.free(rng.choice(watched.live))
            if rng.random() < 0.02:
                watched.trim()
        for block in watched.live:
            if rng.random() < 0.9:
                watched.free(block)
    planned, fallback = counts(watched)
    assert planned > 0
    assert fallback > 25
    assert planned + fallback == watched.allocator.stats().allocations
