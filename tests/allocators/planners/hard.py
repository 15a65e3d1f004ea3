# SPDX-License-Identifier: Apache-2.0
"""Blocks that are hard to plan, because a lowest plan leaves few gaps or none."""

import random

from tests.allocators.planners.judge import Block


def planted(rng: random.Random, blocks: int, side: int, lost: float) -> list[Block]:
    """Rectangles that a square of bytes by instants is cut into, of which some are then lost.

    A plan that is `side` bytes high exists: the rectangles where they were cut.
    """
    rectangles = [(0, side, 0, side)]
    while len(rectangles) < blocks:
        chosen = rng.sample(range(len(rectangles)), min(len(rectangles), rng.choice([1, 2, 4])))
        largest = max(
            chosen,
            key=lambda at: (
                (rectangles[at][1] - rectangles[at][0]) * (rectangles[at][3] - rectangles[at][2])
            ),
        )
        first, last, low, high = rectangles[largest]
        if rng.random() < 0.5 and high - low > 1:
            cut = rng.randint(low + 1, high - 1)
            rectangles[largest : largest + 1] = [(first, last, low, cut), (first, last, cut, high)]
        elif last - first > 1:
            cut = rng.randint(first + 1, last - 1)
            rectangles[largest : largest + 1] = [(first, cut, low, high), (cut, last, low, high)]
    kept = [rectangle for rectangle in rectangles if rng.random() >= lost]
    rng.shuffle(kept)
    return [(high - low, first, last) for first, last, low, high in kept]


def without_a_gap(rng: random.Random, *, load: int, instants: int, largest: int) -> list[Block]:
    """Blocks whose sizes add up to `load` at every instant."""
    blocks: list[Block] = []
    alive: list[tuple[int, int]] = []
    for now in range(instants):
        rng.shuffle(alive)
        ending = len(alive) * 3 // 10
        blocks += [(size, first, now) for size, first in alive[:ending]]
        alive = alive[ending:]
        while free := load - sum(size for size, _ in alive):
            alive.append((rng.randint(1, min(free, largest)), now))
    return blocks + [(size, first, instants) for size, first in alive]


def without_large_ones(rng: random.Random, blocks: int, side: int, lost: int) -> list[Block]:
    """The rectangles of `planted`, of which some large ones are lost."""
    kept = planted(rng, blocks, side, lost=0)
    areas = [size * (last - first) for size, first, last in kept]
    large = {max(rng.sample(range(blocks), 10), key=areas.__getitem__) for _ in range(lost)}
    return [block for index, block in enumerate(kept) if index not in large]


def filled_up(rng: random.Random, blocks: int, *, instants: int, largest: int) -> list[Block]:
    """Random blocks, and more blocks that raise the load of each instant to the highest one."""
    made: list[Block] = []
    for _ in range(blocks):
        first = rng.randrange(instants)
        made.append((rng.randint(1, largest), first, first + rng.randint(1, instants)))
    end = max(last for _, _, last in made)
    loads = [sum(size for size, first, last in made if first <= n < last) for n in range(end)]
    for now in range(end):
        if missing := max(loads) - loads[now]:
            last = now + 1
            while last < end and loads[last] + missing <= max(loads) and rng.random() < 0.5:
                last += 1
            made.append((missing, now, last))
            loads[now:last] = [load + missing for load in loads[now:last]]
    return made
