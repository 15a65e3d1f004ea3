# SPDX-License-Identifier: Apache-2.0
"""The rules that every plan must follow, and the judge that detects violations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.allocators import FOREVER, PlanResult
from tests.allocators.planners.judge import Block, Rule, blocks_of, broken, plan

PLANNERS = allocators.planners()
ALIGNMENTS = st.sampled_from([1, 4, 64])


def test_the_list_of_planners_is_sorted_and_complete() -> None:
    assert sorted(PLANNERS) == PLANNERS
    assert {"best_fit", "exact", "execution_order", "greedy_by_size", "no_reuse"} <= {*PLANNERS}


@pytest.mark.parametrize("planner", PLANNERS)
@given(blocks_of(40), ALIGNMENTS)
def test_every_plan_is_valid(planner: str, blocks: list[Block], alignment: int) -> None:
    plan(blocks, planner, alignment, time_limit=0.05)


@given(blocks_of(25), ALIGNMENTS)
def test_exact_is_no_higher_than_any_other(blocks: list[Block], alignment: int) -> None:
    exact = plan(blocks, "exact", alignment, time_limit=0.2)
    for planner in {*PLANNERS} - {"exact"}:
        other = plan(blocks, planner, alignment)
        assert exact.height <= other.height
        assert other.lower_bound <= exact.height


@pytest.mark.parametrize("planner", PLANNERS)
def test_an_empty_plan_has_height_zero(planner: str) -> None:
    result = plan([], planner)
    assert (result.height, result.max_load, result.lower_bound, result.optimal) == (0, 0, 0, True)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_block_may_last_forever(planner: str) -> None:
    result = plan([(8, 0, FOREVER), (8, 5, FOREVER), (8, 0, 5)], planner)
    assert result.lower_bound == 16


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("wrong", [(0, 0, 1), (1, 1, 1), (1, 2, 1)])
def test_an_invalid_lifetime_is_an_error_that_names_the_block(planner: str, wrong: Block) -> None:
    with pytest.raises(allocators.SpecError, match="block 1"):
        plan([(1, 0, 1), wrong], planner)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_sum_of_sizes_beyond_the_address_space_is_an_error(planner: str) -> None:
    with pytest.raises(allocators.SpecError, match="2\\^62"):
        plan([(2**61, 0, 2), (2**61, 0, 2)], planner)
    with pytest.raises(allocators.SpecError, match="2\\^62"):
        plan([(2**64 - 1, 0, 2)], planner, 64)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("alignment", [0, 3])
def test_alignment_must_be_a_power_of_two(planner: str, alignment: int) -> None:
    with pytest.raises(allocators.SpecError, match=f"alignment {alignment}"):
        plan([(1, 0, 1)], planner, alignment)


def test_an_unknown_planner_is_an_error_that_lists_the_valid_ones() -> None:
    with pytest.raises(allocators.SpecError, match=", ".join(PLANNERS)):
        plan([(1, 0, 1)], "best")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (([1.5], [0], [1]), "sizes"),
        (([1], [-1], [1]), "first: every value must be from 0"),
        (([1], [0], [2**32]), "last: every value must be from 0"),
        (([[1]], [0], [1]), "sizes"),
        (([1, 1], [0], [1, 1]), "equal length"),
    ],
)
def test_invalid_arrays_are_an_error(blocks: tuple[list[int], ...], message: str) -> None:
    with pytest.raises(allocators.SpecError, match=message):
        allocators.plan(*blocks)


@pytest.mark.parametrize("time_limit", [0, -1, float("nan")])
def test_a_time_limit_must_be_positive(time_limit: float) -> None:
    with pytest.raises(allocators.SpecError, match="time limit"):
        plan([(1, 0, 1)], "exact", time_limit=time_limit)


GOOD: list[Block] = [(4, 0, 2), (4, 1, 3)]
MADE = PlanResult("", np.array([0, 4], np.uint64), 8, 8, 8, 0.0)


def moved(*offsets: int) -> PlanResult:
    return replace(MADE, offsets=np.array(offsets, np.uint64))


BREAKS = [
    (Rule.COMPLETE, moved(0)),
    (Rule.ALIGNED, moved(0, 6)),
    (Rule.APART, moved(0, 0)),
    (Rule.APART, moved(3, 0)),
    (Rule.HEIGHT, replace(MADE, height=9)),
    (Rule.HEIGHT, replace(MADE, height=7)),
    (Rule.MAX_LOAD, replace(MADE, max_load=7)),
    (Rule.BOUNDED, replace(MADE, lower_bound=9)),
    (Rule.BOUNDED, replace(MADE, lower_bound=7)),
]


@pytest.mark.parametrize(("rule", "result"), BREAKS)
def test_a_broken_rule_is_named(rule: Rule, result: PlanResult) -> None:
    assert broken(GOOD, MADE, 4) == []
    assert rule in broken(GOOD, result, 4)


def test_every_rule_can_be_broken() -> None:
    assert {rule for rule, _ in BREAKS} == {*Rule}
