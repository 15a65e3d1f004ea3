# SPDX-License-Identifier: Apache-2.0
"""best_fit: XLA's rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allocbench import allocators
from tests.allocators.planners.judge import Block, blocks_of, plan
from tests.allocators.planners.stated import many_blocks, place_in_order


def stated(blocks: list[Block], alignment: int) -> list[int]:
    order = sorted(
        range(len(blocks)),
        key=lambda index: (-blocks[index][0], blocks[index][1] - blocks[index][2], index),
    )
    return place_in_order(
        blocks, order, alignment, lambda gaps: min(gaps, key=lambda gap: (gap[2] - gap[1], gap[1]))
    )


@given(blocks_of(40), st.sampled_from([1, 4, 64]))
def test_offsets_follow_the_rule(blocks: list[Block], alignment: int) -> None:
    assert plan(blocks, "best_fit", alignment).offsets.tolist() == stated(blocks, alignment)


def test_offsets_of_many_blocks_follow_the_rule() -> None:
    blocks = many_blocks()
    created = allocators.plan(*zip(*blocks, strict=True), planner="best_fit", alignment=4)
    assert created.offsets.tolist() == stated(blocks, 4)


def test_ties_go_to_the_longest_then_the_first_given() -> None:
    blocks = [(8, 3, 5), (8, 3, 5), (8, 0, 9)]
    assert plan(blocks, "best_fit").offsets.tolist() == [8, 16, 0]
