# SPDX-License-Identifier: Apache-2.0
"""A second, short and slow implementation of the planners' rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.allocators.planners.judge import Block, alive_together

Gap = tuple[int, int, int]  # aligned end of the block below, and offset of the block above


def up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def place_in_order(
    blocks: Sequence[Block],
    order: Sequence[int],
    alignment: int,
    choose: Callable[[list[Gap]], Gap],
) -> list[int]:
    """Offsets of blocks placed in this order, each in the gap chosen among those that hold it.

    Without such a gap, a block is placed above all blocks that are alive with it.
    """
    offsets: dict[int, int] = {}
    for block in order:
        size = blocks[block][0]
        gaps, end = [], 0
        for other in sorted(offsets, key=lambda other: offsets[other]):
            if alive_together(blocks[block], blocks[other]):
                if up(end, alignment) + size <= offsets[other]:
                    gaps.append((end, up(end, alignment), offsets[other]))
                end = max(end, offsets[other] + blocks[other][0])
        offsets[block] = choose(gaps)[1] if gaps else up(end, alignment)
    return [offsets[block] for block in range(len(blocks))]
