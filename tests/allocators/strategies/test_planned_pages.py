# SPDX-License-Identifier: Apache-2.0
"""planned: pages move, and blocks outside the plan are not overwritten."""

import random

import pytest

from allocbench import allocators
from tests.allocators.strategies.test_planned import PAGE, counted, get, planned, run_step
from tests.conftest import MIB, Make


@pytest.mark.parametrize(
    ("spec", "capacity", "page"),
    [
        ("planned", "1GiB", 2),
        ("planned", "24GiB", 2),
        ("planned", "40GiB", 4),
        ("planned", "80GiB", 8),
        ("planned", "500GiB", 8),
        ("planned:page=2MiB", "80GiB", 2),
    ],
)
def test_pages_grow_with_the_device(spec: str, capacity: str, page: int) -> None:
    allocator = allocators.make(spec, allocators.SimulatedDevice(capacity))
    allocator.allocate(MIB)
    assert allocator.stats().reserved == page * MIB


@pytest.mark.parametrize("page", ["2MiB", "32MiB"])
@pytest.mark.parametrize("seed", range(4))
def test_steps_that_drift_never_corrupt(seed: int, page: str) -> None:
    draw = random.Random(seed)
    watched = planned("512MiB", f"planned:page={page}")
    kept: list[int] = []
    for _ in range(30):
        watched.step()
        alive = []
        for size in (3, 9, 2, 14, 1):
            if draw.random() < 0.9:
                alive.append(get(watched, int(size * MIB * draw.uniform(0.8, 1.2))))
            if draw.random() < 0.3 and alive:
                watched.free(alive.pop(draw.randrange(len(alive))))
        if draw.random() < 0.3 and alive:
            kept.append(alive.pop())
        if kept and draw.random() < 0.3:
            watched.free(kept.pop(0))
        for block in alive:
            watched.free(block)
        watched.allocator.check()


@pytest.mark.parametrize("which", range(6))
def test_a_block_that_outlives_its_step_keeps_its_place(which: int) -> None:
    watched = planned()

    def run() -> list[int]:
        watched.step()
        watched.free(get(watched, 3 * PAGE))
        return [get(watched, MIB) for _ in range(6)]  # in the same pages

    for _ in range(3):
        for block in run():
            watched.free(block)
    kept = run().pop(which)
    for block in watched.live:
        if block != kept:
            watched.free(block)
    before = counted(watched)["fallback_requests"]
    run()
    assert counted(watched)["fallback_requests"] - before == 2


def test_idle_pages_move_before_more_memory_is_requested() -> None:
    watched = planned("64MiB")
    blocks = [get(watched, 4 * MIB) for _ in range(16)]
    for block in blocks[::2]:
        watched.free(block)
    get(watched, 32 * MIB)  # from eight places
    assert watched.allocator.stats().reserved == 64 * MIB
    assert watched.allocator.stats().failures == 0


def test_a_trim_leaves_only_pages_with_blocks() -> None:
    watched = planned()
    run_step(watched, 700)
    run_step(watched, 700)
    kept = get(watched, 3 * MIB)
    watched.trim()
    assert watched.allocator.stats().reserved <= 3 * MIB + 2 * PAGE
    watched.free(kept)
    watched.trim()
    assert watched.allocator.stats().reserved == 0


def test_a_refused_request_changes_only_mapped_pages() -> None:
    watched = planned("16MiB")
    kept = get(watched, 9 * MIB)
    assert watched.allocate(9 * MIB) is None
    assert watched.allocator.stats().failures == 1
    watched.free(kept)
    assert watched.allocate(16 * MIB) is not None


def test_idle_pages_make_up_for_memory_given_to_others(make: Make) -> None:
    allocator = make("planned", "64MiB")

    def run() -> None:
        allocator.step()
        first, second = allocator.allocate(20 * MIB), allocator.allocate(20 * MIB)
        allocator.deallocate(first)
        allocator.deallocate(second)

    for _ in range(2):
        run()
    allocator.trim()
    other = allocators.make("naive", allocator.device)
    other.allocate(40 * MIB)
    before = allocator.counters()["planned_requests"]
    allocator.step()
    for _ in range(2):
        allocator.deallocate(allocator.allocate(20 * MIB))
    assert allocator.counters()["planned_requests"] - before == 2
    assert allocator.stats().reserved == 20 * MIB


def test_a_block_freed_on_another_stream_waits_for_a_step(make: Make) -> None:
    allocator = make("planned")
    block = allocator.allocate(PAGE // 4, stream=1)
    allocator.deallocate(block, stream=2)
    assert allocator.allocate(PAGE // 4, stream=1) != block
    allocator.step()
    assert allocator.allocate(PAGE // 4, stream=1) == block
