# SPDX-License-Identifier: Apache-2.0
"""The judge of plans: finds the rules that a plan breaks, slowly and without planner code."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import permutations

from hypothesis import strategies as st

from allocbench import allocators
from allocbench.allocators import PlanResult

Block = tuple[int, int, int]  # bytes, first instant, instant after the last


class Rule(StrEnum):
    COMPLETE = "every block has an offset"
    ALIGNED = "an offset is a multiple of the alignment"
    APART = "blocks alive together do not overlap"
    HEIGHT = "the height is the highest end"
    MAX_LOAD = "the max load is the largest sum of the sizes alive at one instant"
    BOUNDED = "max load <= lower bound <= height"


def broken(blocks: Sequence[Block], created: PlanResult, alignment: int = 1) -> list[Rule]:
    """The rules that a plan breaks; empty if it is valid."""
    offsets = created.offsets.tolist()
    if len(offsets) != len(blocks):
        return [Rule.COMPLETE]
    ends = [offset + size for offset, (size, _, _) in zip(offsets, blocks, strict=True)]
    kept = {
        Rule.ALIGNED: all(offset % alignment == 0 for offset in offsets),
        Rule.APART: all(
            not alive_together(blocks[a], blocks[b])
            or ends[a] <= offsets[b]
            or ends[b] <= offsets[a]
            for a in range(len(blocks))
            for b in range(a)
        ),
        Rule.HEIGHT: created.height == max(ends, default=0),
        Rule.MAX_LOAD: created.max_load
        == max((load(blocks, instant) for _, instant, _ in blocks), default=0),
        Rule.BOUNDED: created.max_load <= created.lower_bound <= created.height,
    }
    return [rule for rule, is_kept in kept.items() if not is_kept]


def alive_together(block: Block, other: Block) -> bool:
    return block[1] < other[2] and other[1] < block[2]


def load(blocks: Sequence[Block], instant: int) -> int:
    return sum(size for size, first, last in blocks if first <= instant < last)


def lowest_height(blocks: Sequence[Block], alignment: int = 1) -> int:
    """The height of the lowest possible plan, found by trying all orders.

    Taken in the order of their offsets in a lowest plan, blocks that each take the lowest free
    place end no higher than in that plan.
    """
    return min(_height(order, alignment) for order in permutations(blocks))


def fits(blocks: Sequence[Block], height: int) -> bool:
    """Whether a plan of this height exists: tries all offsets, instant by instant."""
    states: set[tuple[tuple[int, int], ...]] = {()}  # blocks alive, and their offsets
    for now in sorted({first for _, first, _ in blocks}):
        ended = {n for n, (_, _, last) in enumerate(blocks) if last <= now}
        states = {tuple(one for one in state if one[0] not in ended) for state in states}
        for block, (size, first, _) in enumerate(blocks):
            if first == now:
                states = {
                    tuple(sorted((*state, (block, offset))))
                    for state in states
                    for offset in range(height - size + 1)
                    if all(
                        offset + size <= other or other + blocks[n][0] <= offset
                        for n, other in state
                    )
                }
    return bool(states)


def _height(order: Sequence[Block], alignment: int) -> int:
    placed: list[tuple[int, Block]] = []
    for block in order:
        offset = 0
        for other_offset, other in sorted(placed):
            if not alive_together(block, other):
                continue
            if offset + block[0] <= other_offset:
                break
            offset = max(offset, -(-(other_offset + other[0]) // alignment) * alignment)
        placed.append((offset, block))
    return max((offset + block[0] for offset, block in placed), default=0)


def plan(
    blocks: Sequence[Block], planner: str, alignment: int = 1, time_limit: float = 10
) -> PlanResult:
    """A plan by the named planner, checked by the judge so that tests can rely on it."""
    sizes, first, last = ([block[field] for block in blocks] for field in range(3))
    created = allocators.plan(
        sizes, first, last, planner=planner, alignment=alignment, time_limit=time_limit
    )
    assert not (result := broken(blocks, created, alignment)), "; ".join(result)
    return created


def blocks_of(
    most: int, largest: int = 40, instants: int = 30, longest: int = 20
) -> st.SearchStrategy[list[Block]]:
    """Up to `most` random blocks; with few sizes and instants, ties are frequent."""
    block = st.tuples(
        st.integers(1, largest), st.integers(0, instants), st.integers(1, longest)
    ).map(lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2]))
    return st.lists(block, max_size=most)
