# SPDX-License-Identifier: Apache-2.0
"""Planners place blocks by their rules; a second, short implementation says where.

Whole graphs are in test_graph_plan.py.
"""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.allocators import FOREVER
from tests.allocators.planners.judge import Block, blocks_of, plan
from tests.allocators.planners.stated import Gap, many_blocks, place_in_order

FOLLOWED = ("best_fit", "execution_order", "greedy_by_size")


def stated(planner: str, blocks: list[Block], alignment: int) -> list[int]:
    if planner == "best_fit":  # XLA's: the gap that leaves least, the lowest of equals
        order = sorted(
            range(len(blocks)),
            key=lambda index: (-blocks[index][0], blocks[index][1] - blocks[index][2], index),
        )
        return place_in_order(
            blocks,
            order,
            alignment,
            lambda gaps: min(gaps, key=lambda gap: (gap[2] - gap[1], gap[1])),
        )
    if planner == "execution_order":  # TFLite's first rule: the smallest gap
        order = sorted(range(len(blocks)), key=lambda index: blocks[index][1])
        return place_in_order(
            blocks,
            order,
            alignment,
            lambda gaps: min(gaps, key=lambda gap: (gap[2] - gap[0], gap[1])),
        )
    whole = [index for index, block in enumerate(blocks) if block[1:] == (0, FOREVER)]
    rest = [index for index, block in enumerate(blocks) if block[1:] != (0, FOREVER)]
    rest.sort(key=lambda index: (-blocks[index][0], blocks[index][1], -index))
    return place_in_order(blocks, whole + rest, alignment, _first_that_tflite_prefers)


def _first_that_tflite_prefers(gaps: list[Gap]) -> Gap:
    """Compares the gap from its aligned start with the best so far from its unaligned start."""
    return reduce(lambda best, gap: gap if gap[2] - gap[1] < best[2] - best[0] else best, gaps)


@pytest.mark.parametrize("planner", FOLLOWED)
@given(blocks_of(40), st.sampled_from([1, 4, 64]), st.sets(st.integers(0, 39)))
def test_offsets_follow_the_rule(
    planner: str, blocks: list[Block], alignment: int, whole: set[int]
) -> None:
    blocks = [(b[0], 0, FOREVER) if index in whole else b for index, b in enumerate(blocks)]
    assert plan(blocks, planner, alignment).offsets.tolist() == stated(planner, blocks, alignment)


@pytest.mark.parametrize("planner", FOLLOWED)
def test_offsets_of_many_blocks_follow_the_rule(planner: str) -> None:
    blocks = many_blocks()
    created = allocators.plan(*zip(*blocks, strict=True), planner=planner, alignment=4)
    assert created.offsets.tolist() == stated(planner, blocks, 4)


@pytest.mark.parametrize(
    ("planner", "blocks", "offsets"),
    [
        # ties: the longest, then the first given
        ("best_fit", [(8, 3, 5), (8, 3, 5), (8, 0, 9)], [8, 16, 0]),
        # ties: the earlier, then the last given
        ("greedy_by_size", [(8, 1, 9), (8, 0, 9), (8, 1, 9)], [16, 0, 8]),
        # blocks that are alive throughout are placed first, in the order given
        (
            "greedy_by_size",
            [(1, 0, 9), (2, 0, FOREVER), (100, 0, 9), (3, 0, FOREVER), (50, 1, FOREVER)],
            [155, 0, 5, 2, 105],
        ),
        # a block that ends makes room for one that begins
        ("execution_order", [(100, 0, 5), (100, 5, 9)], [0, 0]),
        ("execution_order", [(100, 0, 6), (100, 5, 9)], [0, 100]),
        # stacked in the order given
        ("no_reuse", [(100, 5, 6), (1, 0, 1), (64, 1, 2)], [0, 100, 101]),
    ],
)
def test_small_plans(planner: str, blocks: list[Block], offsets: list[int]) -> None:
    assert plan(blocks, planner).offsets.tolist() == offsets
    aligned = plan(blocks, planner, 64).offsets.tolist()
    assert planner != "no_reuse" or aligned == [0, 128, 192]
