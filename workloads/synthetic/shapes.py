# SPDX-License-Identifier: Apache-2.0
"""Simple patterns, each showing one behavior of real programs and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocbench.workloads.events import Events

if TYPE_CHECKING:
    from numpy.random import RandomState

KIB, MIB = 1 << 10, 1 << 20


def _seeded(seed: int) -> RandomState:
    """A generator with frozen streams, so a seed always gives the same trace."""
    from numpy.random import RandomState

    return RandomState(seed)


def random(
    events: Events, allocs: int, max_size: int, max_live: int, alloc_percent: int, seed: int
) -> None:
    """Allocs of random sizes up to a maximum, frees of random live blocks.

    The rules of RMM's benchmark: an alloc has the probability `alloc_percent` while there are
    allocs left and live bytes are below `max_live`. In total there are twice as many events as
    allocs.
    """
    draw = _seeded(seed)
    sizes = draw.randint(1, max_size + 1, 2 * allocs, dtype="int64").tolist()
    chances = draw.randint(0, 100, 2 * allocs).tolist()
    picks = draw.random_sample(2 * allocs).tolist()
    live: list[tuple[int, int]] = []  # block, size
    held = allocated = 0
    for size, chance, pick in zip(sizes, chances, picks, strict=True):
        wanted = chance < alloc_percent and allocated < allocs and held + size < max_live
        if wanted or (not live and allocated < allocs):
            live.append((events.alloc(size), size))
            held, allocated = held + size, allocated + 1
        elif live:
            index = int(pick * len(live))
            live[index], live[-1] = live[-1], live[index]
            block, freed = live.pop()
            events.free(block)
            held -= freed
    for block, _ in live:
        events.free(block)


def ramp(events: Events, blocks: int, size: int, repeats: int, order: str, seed: int) -> None:
    """Equal blocks, allocated one after the other, then freed one after the other."""
    draw = _seeded(seed)
    for _ in range(repeats):
        events.mark("step")
        live = [events.alloc(size) for _ in range(blocks)]
        if order == "lifo":
            live.reverse()
        elif order == "shuffled":
            live = [live[index] for index in draw.permutation(blocks)]
        for block in live:
            events.free(block)


def sawtooth(
    events: Events, teeth: int, peak: int, smallest: int, largest: int, kept: int, seed: int
) -> None:
    """Each step fills the peak with equal blocks of one size, different per step, and frees them.

    The sizes are drawn log-uniformly between the two bounds. In each step, `kept` blocks, spread
    evenly, survive until the next step has been filled.
    """
    draw = _seeded(seed)
    over: list[int] = []
    held = 0
    for share in draw.random_sample(teeth).tolist():
        events.mark("step")
        size = round(smallest * (largest / smallest) ** share)
        live = [events.alloc(size) for _ in range(max(1, (peak - held) // size))]
        for block in over:
            events.free(block)
        every = -(-len(live) // kept) if kept else len(live) + 1
        over = live[every - 1 :: every]
        held = len(over) * size
        for index, block in enumerate(live, 1):
            if index % every:
                events.free(block)
    for block in over:
        events.free(block)


def straddler(events: Events, over: int, copies: int, repeats: int, seed: int) -> None:
    """Sizes `over` bytes above the bounds at which allocators change their rounding, all live.

    Bounds: powers of two from 512 B to 64 MiB, small multiples of 512 B and of 2 MiB, and 1 MiB and
    10 MiB, where PyTorch changes its pool and its segments.
    """
    bounds = {512 << power for power in range(18)}
    bounds |= {512 * n for n in range(1, 16)} | {2 * MIB * n for n in range(1, 16)} | {10 * MIB}
    draw = _seeded(seed)
    sizes = sorted(bounds) * copies
    for _ in range(repeats):
        events.mark("step")
        live = [events.alloc(sizes[index] + over) for index in draw.permutation(len(sizes))]
        for index in draw.permutation(len(live)):
            events.free(live[index])


def ping_pong(
    events: Events, streams: int, rounds: int, size: int, buffers: int, step: int, seed: int
) -> None:
    """Buffers allocated on one stream and freed on the next, in rounds.

    Each round, the next stream allocates a buffer of between half of `size` and all of it, and the
    oldest of `buffers` is freed on the stream after its own. A step has `step` rounds.
    """
    draw = _seeded(seed)
    sizes = draw.randint(max(1, size // 2), size + 1, rounds, dtype="int64").tolist()
    live: list[tuple[int, int]] = []  # block, stream
    for n, bytes_ in enumerate(sizes):
        if n % step == 0:
            events.mark("step")
        if len(live) == buffers:
            block, stream = live.pop(0)
            events.free(block, (stream + 1) % streams)
        stream = n % streams
        live.append((events.alloc(bytes_, stream=stream), stream))
    for block, stream in live:
        events.free(block, (stream + 1) % streams)
