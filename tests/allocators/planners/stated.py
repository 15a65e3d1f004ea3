# SPDX-License-Identifier: Apache-2.0
"""A second, short implementation of the planners' rules, and many blocks to try it on."""

import random
from collections.abc import Callable, Sequence

import numpy as np

from allocbench.allocators import FOREVER
from tests.allocators.planners.judge import Block

Gap = tuple[
    int, int, int
]  # end of the block below, that end aligned, and offset of the block above


def place_in_order(
    blocks: Sequence[Block],
    order: Sequence[int],
    alignment: int,
    choose: Callable[[list[Gap]], Gap],
) -> list[int]:
    """Offsets of blocks placed in this order, each in the gap chosen among those that hold it.

    Without such a gap, a block is placed above all blocks that are alive with it.
    """
    sizes, first, last = np.array(blocks, np.int64).reshape(-1, 3).T
    offsets = np.zeros(len(blocks), np.int64)
    placed = np.array([], np.int64)  # in the order of their offsets
    for block in order:
        alive = placed[(first[placed] < last[block]) & (first[block] < last[placed])]
        below = np.maximum.accumulate(np.append(0, offsets[alive] + sizes[alive]))
        aligned = -(-below // alignment) * alignment
        large = np.flatnonzero(aligned[:-1] + sizes[block] <= offsets[alive])
        gaps = zip(below[large], aligned[large], offsets[alive][large], strict=True)
        offsets[block] = choose(list(gaps))[1] if len(large) else aligned[-1]
        placed = np.insert(placed, np.searchsorted(offsets[placed], offsets[block]), block)
    return [int(offset) for offset in offsets]


def many_blocks() -> list[Block]:
    """More blocks than planners visit one by one, alive for a short time, for long, or forever."""
    drawn = random.Random(1)
    blocks: list[Block] = []
    for _ in range(7_000):
        begin, longest = drawn.randrange(10_000), drawn.choice([3, 300, 2_000, 10_000])
        end = FOREVER if drawn.random() < 0.01 else begin + drawn.randint(1, longest)
        blocks.append((drawn.randint(1, 1 << drawn.randint(0, 12)), begin, end))
    return blocks
