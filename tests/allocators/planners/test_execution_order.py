# SPDX-License-Identifier: Apache-2.0
"""Plans in execution order: no two live blocks overlap, and the rule is TFLite's."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench import allocators

Lifetime = tuple[int, int, int]  # bytes, first instant, instant after the last


def plan(lifetimes: list[Lifetime], alignment: int) -> tuple[list[int], int]:
    size, first, last = np.array(lifetimes, np.uint64).reshape(-1, 3).T
    result = allocators.plan(size, first, last, planner="execution_order", alignment=alignment)
    return result.offsets.tolist(), result.height


def stated(lifetimes: list[Lifetime], alignment: int) -> list[int]:
    """The rule restated: the smallest gap between live blocks that holds the block."""
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for block in sorted(range(len(lifetimes)), key=lambda block: lifetimes[block][1]):
        size, first, _ = lifetimes[block]
        placed = [other for other in placed if lifetimes[other][2] > first]
        gaps, end = [], 0
        for other in sorted(placed, key=lambda other: offsets[other]):
            start = -(-end // alignment) * alignment
            if start + size <= offsets[other]:
                gaps.append((offsets[other] - end, start))
            end = offsets[other] + lifetimes[other][0]
        offsets[block] = min(gaps)[1] if gaps else -(-end // alignment) * alignment
        placed.append(block)
    return offsets


lifetimes_ = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(1, 20)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    max_size=40,
)


@given(lifetimes_, st.sampled_from([1, 4, 64]))
def test_blocks_alive_together_do_not_overlap(lifetimes: list[Lifetime], alignment: int) -> None:
    offsets, height = plan(lifetimes, alignment)
    assert all(offset % alignment == 0 for offset in offsets)
    ends = [offset + size for offset, (size, _, _) in zip(offsets, lifetimes, strict=True)]
    assert height == max(ends, default=0)
    for a, (_, first, last) in enumerate(lifetimes):
        for b, (_, other_first, other_last) in enumerate(lifetimes[:a]):
            if first < other_last and other_first < last:
                assert ends[a] <= offsets[b] or ends[b] <= offsets[a]


@given(lifetimes_, st.sampled_from([1, 4, 64]))
def test_offsets_follow_the_rule(lifetimes: list[Lifetime], alignment: int) -> None:
    assert plan(lifetimes, alignment)[0] == stated(lifetimes, alignment)


@pytest.mark.parametrize("alignment", [1, 64])
def test_offsets_follow_the_rule_with_many_live_blocks(alignment: int) -> None:
    rng = random.Random(0)
    changes = [sorted(rng.sample(range(3000), 2)) for _ in range(1500)]
    lifetimes = [(rng.randint(1, 40) ** 2, first, last) for first, last in changes]
    assert plan(lifetimes, alignment)[0] == stated(lifetimes, alignment)


def test_ending_blocks_make_room_for_beginning_blocks() -> None:
    assert plan([(100, 0, 5), (100, 5, 9)], 1) == ([0, 0], 100)
    assert plan([(100, 0, 6), (100, 5, 9)], 1) == ([0, 100], 200)


@pytest.mark.parametrize("wrong", [(0, 0, 1), (1, 1, 1), (1, 2, 1)])
def test_an_invalid_lifetime_is_an_error_that_names_the_block(wrong: Lifetime) -> None:
    with pytest.raises(allocators.SpecError, match="block 1"):
        plan([(1, 0, 1), wrong], 64)


def test_arrays_of_different_lengths_are_an_error() -> None:
    with pytest.raises(allocators.SpecError, match="equal length"):
        allocators.plan([1, 1], [0], [1, 1], planner="execution_order")


@pytest.mark.parametrize("alignment", [0, 3])
def test_alignment_must_be_a_power_of_two(alignment: int) -> None:
    with pytest.raises(allocators.SpecError, match=f"alignment {alignment}"):
        plan([(1, 0, 1)], alignment)


def test_a_sum_of_sizes_beyond_the_address_space_is_an_error() -> None:
    with pytest.raises((allocators.OutOfMemory, allocators.SpecError)):
        plan([(2**63, 0, 2), (2**63, 0, 2), (2**63, 0, 2)], 64)
