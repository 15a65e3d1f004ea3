# SPDX-License-Identifier: Apache-2.0
"""How the exact planner searches: pieces, planted plans, repair, and limits on its time."""

import random
from itertools import count

import pytest

from tests.allocators.planners.hard import planted, without_a_gap, without_large_ones
from tests.allocators.planners.judge import Block, plan
from tests.allocators.planners.limited import plan_until


def _inference(rng: random.Random, requests: int, layers: int) -> list[Block]:
    """A model that is always in memory, and requests with activations that live briefly."""
    end = requests * layers * 4
    blocks = [(rng.randint(1, 64) * 4096 + 4, 0, end) for _ in range(layers)]
    for request in range(requests):
        for layer in range(layers):
            begin = (request * layers + layer) * 4
            blocks += [
                (rng.randint(1, 99) * 512, begin + at, min(end, begin + at + rng.randint(2, 9)))
                for at in range(4)
            ]
        end_of_request = (request + 1) * layers * 4
        blocks = [
            (size, first, last if first == 0 and last == end else min(last, end_of_request))
            for size, first, last in blocks
        ]
    return blocks


@pytest.mark.parametrize("seed", range(4))
def test_planted_plans_are_found(seed: int) -> None:
    blocks = planted(random.Random(seed), 160, side=1024, lost=0.08)
    assert plan(blocks, "exact", time_limit=3600).height <= 1024


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_planted_plans_with_large_gaps_are_found(seed: int) -> None:
    blocks = without_large_ones(random.Random(seed), 320, side=1024, lost=6)
    found, _ = plan_until(blocks, 20_000)
    assert found.height <= 1024


def test_weights_do_not_keep_requests_from_being_planned_one_by_one() -> None:
    blocks = _inference(random.Random(0), requests=30, layers=12)
    assert len(blocks) > 1024  # so that weights are settled although their sizes are rounded
    greedy = plan(blocks, "greedy_by_size", 256)
    exact = plan(blocks, "exact", 256, time_limit=3600)
    assert greedy.height > greedy.lower_bound + 256
    assert exact.height < exact.lower_bound + 256


def _crowd(instants: int) -> list[Block]:
    """About 12 blocks per instant, far too many to be searched to the end."""
    return without_a_gap(random.Random(0), load=1000, instants=instants, largest=400)


@pytest.mark.parametrize(
    ("instants", "ticks"),
    [(40, ticks) for ticks in (1, 2, 3, 10, 100, 1000, 10_000)]
    + [(300, ticks) for ticks in (1, 4, 8, 16, 32, 300)]
    + [(3000, ticks) for ticks in (1, 32, 128, 256, 1000)],
)
def test_every_search_ends_when_the_time_is_up(instants: int, ticks: int) -> None:
    _, reads = plan_until(_crowd(instants), ticks)
    assert ticks < reads <= ticks + 10  # each nested loop may ask once more


def test_a_plan_depends_only_on_the_number_of_reads_of_the_clock() -> None:
    one, other = (plan_until(_crowd(40), 3000)[0] for _ in range(2))
    assert one.offsets.tolist() == other.offsets.tolist()


@pytest.mark.parametrize("reports", [1, 2, 5, 40])
def test_a_signal_ends_every_search(reports: int) -> None:
    seen = count(1)

    def report(seconds: float, height: int, lower_bound: int) -> None:
        assert lower_bound <= height
        if next(seen) == reports:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_until(_crowd(300), 10_000, report)
    assert next(seen) == reports + 1
