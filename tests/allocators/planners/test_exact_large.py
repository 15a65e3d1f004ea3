# SPDX-License-Identifier: Apache-2.0
"""The exact planner on inputs with too many blocks for a search, under a limit on its work."""

import random

import numpy as np
import pytest

from allocbench import allocators
from allocbench.allocators import FOREVER
from allocbench.workloads import catalog, lifetimes
from tests.allocators.planners.hard import planted
from tests.allocators.planners.judge import Block, plan
from tests.allocators.planners.limited import plan_until


def _bundled(name: str) -> list[Block]:
    trace = lifetimes(catalog.load(name))
    return list(zip(trace.size.tolist(), trace.first.tolist(), trace.last.tolist(), strict=True))


@pytest.mark.parametrize("name", ["diffusion-train", "moe-train"])
def test_a_training_run_needs_no_more_memory_than_its_peak(name: str) -> None:
    blocks = _bundled(name)
    found, _ = plan_until(blocks, 20_000, alignment=256)
    assert len(blocks) > 20_000
    assert found.height == found.lower_bound


def test_repair_goes_back_to_its_best_plan_and_tries_again() -> None:
    found, _ = plan_until(_bundled("serve-preempt"), 500_000, alignment=256)
    assert (found.height - found.lower_bound) * 500 < found.lower_bound


def test_rebuilding_begins_again_where_repair_has_failed() -> None:
    blocks = planted(random.Random(0), 800, side=30_000, lost=0.2)
    found, _ = plan_until(blocks, 200_000)
    assert (found.height - found.lower_bound) * 16 < found.lower_bound


def _requests(rng: random.Random, requests: int) -> list[Block]:
    """Caches of requests that come and go, and activations of the steps between them."""
    blocks = []
    for request in range(requests):
        begin = request * 12
        for _ in range(4):
            blocks.append((rng.randint(1, 400) * 256, begin, begin + rng.randint(60, 600)))
        for at in range(0, 12, 3):
            blocks.append((rng.randint(1, 900) * 256, begin + at, begin + at + rng.randint(1, 4)))
    return blocks


@pytest.mark.parametrize(
    "blocks",
    [_requests(random.Random(0), 1100), planted(random.Random(0), 9000, side=1 << 20, lost=0.05)],
    ids=["requests", "planted"],
)
def test_repair_removes_more_than_half_of_what_other_plans_waste(blocks: list[Block]) -> None:
    assert len(blocks) > 8192
    fast, _ = plan_until(blocks, 600)
    found, _ = plan_until(blocks, 60_000)
    assert found.lower_bound < found.height
    assert (found.height - found.lower_bound) * 2 < fast.height - fast.lower_bound


def _alive_together(blocks: int) -> list[Block]:
    """Every block is alive at the same instant, and no two have the same lifetime."""
    rng = random.Random(0)
    return [
        (rng.randint(1, 1000), index, blocks + 1 + rng.randrange(blocks)) for index in range(blocks)
    ]


def _half_alive(blocks: int) -> list[Block]:
    """Blocks with random lifetimes: half of them are alive at the same instant."""
    rng = random.Random(0)
    result = []
    for _ in range(blocks):
        first, last = sorted(rng.sample(range(2 * blocks), 2))
        result.append((rng.choice([1, 8, 200, 4096]) * rng.randint(1, 9), first, last))
    return result


def test_the_first_plan_from_the_peak_of_random_lifetimes_wastes_little() -> None:
    found, _ = plan_until(_half_alive(20_000), 40 + 2 * 20_000 // 64)  # two plans
    assert (found.height - found.lower_bound) * 1000 < found.lower_bound


@pytest.mark.parametrize("ticks", [1, 2, 100, 300, 500, 2000])
def test_many_overlaps_do_not_delay_the_end(ticks: int) -> None:
    _, reads = plan_until(_half_alive(12_000), ticks)
    assert ticks < reads <= ticks + 10


def test_plans_from_the_peak_waste_little() -> None:
    rng = random.Random(0)
    sizes = [rng.randint(1, 4096) for _ in range(60)]
    blocks = [
        (rng.choice(sizes), 2 * index, 2 * index + rng.randint(1800, 16_200))
        for index in range(9000)
    ]
    arrays = zip(*blocks, strict=True)
    greedy = allocators.plan(*arrays, planner="greedy_by_size")
    found, _ = plan_until(blocks, 3000)
    assert (found.height - found.lower_bound) * 10 < greedy.height - found.lower_bound


def test_the_clock_is_read_every_64_blocks() -> None:
    """Equal sizes: the first plan is as low as the load, so no other follows."""
    blocks = [(8, first, last) for _, first, last in _alive_together(12_000)]
    found, reads = plan_until(blocks, 1 << 30)
    assert found.height == found.lower_bound == 12_000 * 8
    assert reads >= 12_000 // 64


def test_blocks_that_are_never_freed_are_repaired_too() -> None:
    rng = random.Random(1)
    blocks = [(size, first, FOREVER) for size, first, _ in _requests(rng, 60)]
    blocks += _requests(rng, 1100)
    found, _ = plan_until(blocks, 3000)
    assert found.lower_bound <= found.height


def test_plans_of_many_long_blocks_are_valid() -> None:
    """More blocks than one chunk of the placed blocks holds."""
    rng = random.Random(2)
    blocks = [
        (rng.randint(1, 50), first, first + rng.randint(200, 800))
        for first in (rng.randrange(200) for _ in range(700))
    ]
    for planner in ("greedy_by_size", "best_fit", "exact"):
        result = plan(blocks, planner, alignment=4, time_limit=0.5)
        assert result.height >= result.lower_bound
    assert np.ptp(result.offsets) > 0
