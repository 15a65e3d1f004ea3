# SPDX-License-Identifier: Apache-2.0
"""The exact planner: as low as brute force, and it reports whether a plan is proven."""

import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.allocators.planning import Report
from allocbench.workloads import read_lifetimes
from tests.allocators.planners.hard import filled_up, without_a_gap
from tests.allocators.planners.judge import Block, blocks_of, fits, lowest_height, plan

DATA = Path(__file__).parents[2] / "data/minimalloc"


def _random(
    rng: random.Random, count: int, *, instants: int, longest: int, largest: int
) -> list[Block]:
    begins = [rng.randrange(instants) for _ in range(count)]
    return [(rng.randint(1, largest), index, index + rng.randint(1, longest)) for index in begins]


@given(blocks_of(6, largest=8, instants=6, longest=4), st.sampled_from([1, 4]))
@example([(3, 0, 2), (2, 1, 4), (2, 3, 6), (3, 5, 8), (1, 0, 8)], 1)
def test_exact_matches_brute_force(blocks: list[Block], alignment: int) -> None:
    result = plan(blocks, "exact", alignment, time_limit=3600)
    assert result.optimal
    assert result.height == lowest_height(blocks, alignment)


def test_small_plans_that_are_called_optimal_are_the_lowest() -> None:
    """With an alignment, a block that spans all others cannot be put at the bottom in general."""
    rounded = 0
    for seed in range(600):
        rng = random.Random(seed)
        alignment = rng.choice((2, 4, 8))
        blocks = _random(rng, rng.randint(3, 6), instants=4, longest=5, largest=2 * alignment + 1)
        result = plan(blocks, "exact", alignment, time_limit=3600)
        assert (result.optimal, result.height) == (True, lowest_height(blocks, alignment)), blocks
        rounded += result.height > result.max_load
    assert rounded > 300  # in most of them, the alignment costs something


def test_proofs_agree_with_a_search_of_all_offsets() -> None:
    above_load = 0
    for seed in range(100):
        blocks = filled_up(random.Random(seed), 7, instants=5, largest=3)
        result = plan(blocks, "exact", time_limit=3600)
        assert result.optimal
        assert fits(blocks, result.height), blocks
        assert not fits(blocks, result.height - 1), blocks
        above_load += result.height > result.max_load
    assert above_load == 9


def test_only_the_topmost_block_can_omit_its_rounding() -> None:
    blocks = [(1, 0, 1)] * 3 + [(1, 10, 12)] * 2 + [(1, 1, 2), (1, 4, 20), (1, 2, 3), (1, 12, 13)]
    blocks += [(1, 19, 20), (3, 1, 10), (3, 0, 11), (6, 0, 10), (6, 2, 11), (4, 9, 25), (7, 11, 12)]
    result = plan(blocks, "exact", 4, time_limit=3600)
    assert (result.height, result.optimal) == (29, True)


def test_a_bound_above_the_load_is_proven_by_search() -> None:
    blocks = [(2, 0, 1), (3, 0, 2), (1, 1, 3), (1, 1, 4), (1, 2, 4), (3, 3, 5), (2, 4, 5)]
    result = plan(blocks, "exact", time_limit=3600)
    assert (result.max_load, result.lower_bound, result.height) == (5, 6, lowest_height(blocks))


def test_the_example_of_minimalloc() -> None:
    blocks = read_lifetimes(DATA / "input.12.csv")
    result = plan(
        list(zip(blocks.size.tolist(), blocks.first.tolist(), blocks.last.tolist(), strict=True)),
        "exact",
    )
    assert (result.height, result.optimal) == (12, True)


def test_plans_that_greedy_misses_are_found() -> None:
    blocks = _random(random.Random(0), 1000, instants=4000, longest=80, largest=1000)
    result = plan(blocks, "exact", time_limit=3600)
    assert result.optimal
    assert result.height < plan(blocks, "greedy_by_size").height


# Far too many blocks to be searched in a test.
HARD = without_a_gap(random.Random(0), load=1000, instants=40, largest=400)


def test_an_unproven_plan_is_valid_and_reported_as_such() -> None:
    greedy = plan(HARD, "greedy_by_size").height
    for time_limit in (0.5, 4, 32, 256):  # seconds; a busy machine needs more of them
        result = plan(HARD, "exact", time_limit=time_limit)
        assert not result.optimal
        if result.height < greedy:
            return
    pytest.fail(f"no plan is lower than {greedy} bytes")


def test_progress_is_reported_and_never_worsens() -> None:
    seen: list[tuple[float, int, int]] = []
    result = _plan_hard(lambda *now: seen.append(now), time_limit=2)
    assert seen
    assert sorted(seen) == seen
    heights, bounds = [height for _, height, _ in seen], [bound for _, _, bound in seen]
    assert sorted(heights, reverse=True) == heights
    assert sorted(bounds) == bounds
    assert bounds[-1] <= result.lower_bound <= result.height <= heights[-1]


def test_an_exception_in_report_ends_the_search() -> None:
    def stop(seconds: float, height: int, lower_bound: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _plan_hard(stop, time_limit=3600)


def _plan_hard(report: Report, time_limit: float) -> allocators.PlanResult:
    return allocators.plan(*zip(*HARD, strict=True), time_limit=time_limit, report=report)
