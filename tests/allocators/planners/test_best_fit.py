# SPDX-License-Identifier: Apache-2.0
"""best_fit: XLA's rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.allocators.planners.judge import Block, blocks_of, plan
from tests.allocators.planners.stated import place_in_order


@given(blocks_of(40), st.sampled_from([1, 4, 64]))
def test_offsets_follow_the_rule(blocks: list[Block], alignment: int) -> None:
    order = sorted(
        range(len(blocks)),
        key=lambda index: (-blocks[index][0], blocks[index][1] - blocks[index][2], index),
    )
    stated = place_in_order(
        blocks, order, alignment, lambda gaps: min(gaps, key=lambda gap: (gap[2] - gap[1], gap[1]))
    )
    assert plan(blocks, "best_fit", alignment).offsets.tolist() == stated


def test_ties_go_to_the_longest_then_the_first_given() -> None:
    blocks = [(8, 3, 5), (8, 3, 5), (8, 0, 9)]
    assert plan(blocks, "best_fit").offsets.tolist() == [8, 16, 0]
