# SPDX-License-Identifier: Apache-2.0
"""greedy_by_size: TFLite's current rule; whole graphs are in test_graph_plan.py."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.allocators import FOREVER
from tests.allocators.planners.judge import Block, blocks_of, plan
from tests.allocators.planners.stated import Gap, many_blocks, place_in_order


def choose(gaps: list[Gap]) -> Gap:
    """Compares the gap from its aligned start with the best so far from its unaligned start."""
    return reduce(lambda best, gap: gap if gap[2] - gap[1] < best[2] - best[0] else best, gaps)


def stated(blocks: list[Block], alignment: int) -> list[int]:
    whole = [index for index, block in enumerate(blocks) if block[1:] == (0, FOREVER)]
    rest = [index for index, block in enumerate(blocks) if block[1:] != (0, FOREVER)]
    rest.sort(key=lambda index: (-blocks[index][0], blocks[index][1], -index))
    return place_in_order(blocks, whole + rest, alignment, choose)


@given(blocks_of(40), st.sampled_from([1, 4, 64]), st.sets(st.integers(0, 39)))
def test_offsets_follow_the_rule(blocks: list[Block], alignment: int, whole: set[int]) -> None:
    blocks = [(b[0], 0, FOREVER) if index in whole else b for index, b in enumerate(blocks)]
    assert plan(blocks, "greedy_by_size", alignment).offsets.tolist() == stated(blocks, alignment)


def test_offsets_of_many_blocks_follow_the_rule() -> None:
    blocks = many_blocks()
    created = allocators.plan(*zip(*blocks, strict=True), planner="greedy_by_size", alignment=4)
    assert created.offsets.tolist() == stated(blocks, 4)


def test_blocks_alive_throughout_are_placed_first_in_the_order_given() -> None:
    blocks = [(1, 0, 9), (2, 0, FOREVER), (100, 0, 9), (3, 0, FOREVER), (50, 1, FOREVER)]
    assert plan(blocks, "greedy_by_size").offsets.tolist() == [155, 0, 5, 2, 105]


def test_ties_go_to_the_earlier_then_the_last_given() -> None:
    blocks = [(8, 1, 9), (8, 0, 9), (8, 1, 9)]
    assert plan(blocks, "greedy_by_size").offsets.tolist() == [16, 0, 8]
