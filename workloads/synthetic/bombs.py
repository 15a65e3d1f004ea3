# SPDX-License-Identifier: Apache-2.0
"""Fragmentation bombs: for each way to place blocks, requests that it serves as badly as it can.

M stands for the most bytes live at a time, the option `load`. A bomb is a fixed sequence, so it
relies on where its target places the blocks of an empty device: one after the other.

The theory: Robson, An estimate of the store size necessary for dynamic storage allocation, JACM
18(3), 1971; Bounds for some functions concerning dynamic storage allocation, JACM 21(3), 1974;
Worst case fragmentation of first fit and best fit storage allocation strategies, Computer Journal
20(3), 1977; Knuth, The Art of Computer Programming 1, section 2.5, exercises 36 to 43; Wilson,
Johnstone, Neely and Boles, Dynamic storage allocation: a survey and critical review, IWMM 1995.
"""

from __future__ import annotations

from collections.abc import Callable

from allocbench.workloads.events import Events

KIB, MIB = 1 << 10, 1 << 20

_Keep = Callable[[int, int], bool]  # offset of a block and its size, in units -> is it kept?


def robson(events: Events, load: int, unit: int, doublings: int) -> None:
    """Blocks that double from phase to phase, one of each pair kept: M (1 + doublings / 2).

    Robson's lower bound for any allocator that moves nothing (1974), in its static form. Of every
    aligned range of two blocks one lives on, so that no hole fits the next size, and half of M is
    asked for anew, doubled. Whoever maps pages where they are wanted is spared the doublings above
    a page: a wholly free one can move.
    """
    _double(events, load, unit, doublings, 0, lambda offset, range_: True)


def buddy(events: Events, load: int, unit: int, doublings: int) -> None:
    """As robson, a byte more in each block, and with holes that only a buddy cannot use.

    A byte above a power of two doubles what a buddy sets aside. Of two neighbouring aligned ranges
    one keeps its first block and the other its last: between them lies a hole of twice the next
    size, whose halves belong to different buddies. A buddy needs 2 M (1 + doublings / 2), and
    whoever coalesces any neighbours about M.
    """
    _double(events, load, unit, doublings, 1, lambda offset, range_: offset // range_ % 2 == 0)


def _double(
    events: Events, load: int, unit: int, doublings: int, over: int, keeps_first: _Keep
) -> None:
    """Phases of doubling sizes; of each aligned range its first live block is kept, or its last.

    Offsets are those of a buddy that fills an empty region from its begin, in units.
    """
    live: list[tuple[int, int, int]] = []  # offset in units, bytes, block
    held = end = 0
    for size in (1 << doubling for doubling in range(doublings + 1)):
        events.mark("step")
        ranges: dict[int, list[tuple[int, int, int]]] = {}
        for item in live:
            ranges.setdefault(item[0] // size, []).append(item)
        live = []
        for number, items in ranges.items():
            kept = items[0] if keeps_first(number * size, size) else items[-1]
            live.append(kept)
            for item in items:
                if item is not kept:
                    events.free(item[2])
                    held -= item[1]
        asked = unit * size + over
        end = -(-end // size) * size
        while held + asked <= load:
            live.append((end, asked, events.alloc(asked)))
            end, held = end + size, held + asked
    for _, _, block in live:
        events.free(block)


def best_fit(events: Events, rounds: int, smallest: int, pin: int, page: int) -> None:
    """Holes each a page larger than the one before, each pinned: nearly M n for n rounds.

    A request larger than every hole gets memory of its own, in whole pages; a small one goes where
    best fit likes it most, into the rest behind it, and stays when the large one is freed. After
    Robson (1977): best fit may need nearly M n for requests of up to n units (Knuth 2.5, exercise
    42). `pin` and the rest suit PyTorch's pool for requests above 1 MiB in segments of 2 MiB pages.
    """
    pins = []
    for n in range(rounds):
        events.mark("step")
        large = events.alloc(smallest + n * page)
        pins.append(events.alloc(pin))
        events.free(large)
    for block in pins:
        events.free(block)


def half_chunks(events: Events, blocks: int, size: int, pin: int) -> None:
    """Blocks a little under twice the size that is asked for next, with pins between them.

    TensorFlow hands out a chunk whole unless it is twice as large as needed: half of each is lost
    and the other half of M needs new memory, 1.5 M. Who splits them has the rest for the second
    half of the requests.
    """
    large, pins = [], []
    events.mark("step")
    for _ in range(blocks):
        large.append(events.alloc(2 * size - 512))
        pins.append(events.alloc(pin))
    events.mark("step")
    for block in large:
        events.free(block)
    small = [events.alloc(size - 512 * (n >= blocks)) for n in range(2 * blocks)]
    for block in (*small, *pins):
        events.free(block)


def same_again(events: Events, blocks: int, size: int, pin: int) -> None:
    """Blocks freed and asked for again in a size that lies between two classes of TLSF.

    TLSF looks for a block from the next class up, where every block is large enough, and so passes
    by the ones that fit exactly; the last one freed, the first it would look at in its own class,
    is a little too small: 2 M.
    """
    live, pins = [], []
    events.mark("step")
    for n in range(blocks + 1):
        live.append(events.alloc(size if n < blocks else size - 256))
        pins.append(events.alloc(pin))
    events.mark("step")
    for block in live:
        events.free(block)
    for block in [events.alloc(size) for _ in range(blocks)] + pins:
        events.free(block)


def every_size_once(events: Events, sizes: int, step: int) -> None:
    """One block at a time, each smaller than the one before: lists by size keep all of them.

    With n sizes that is (n + 1) / 2 times M; whoever splits blocks needs the first one alone.
    """
    for n in range(sizes, 0, -1):
        events.mark("step")
        events.free(events.alloc(n * step))


def one_of_each_slab(events: Events, load: int, largest: int, classes: int, slab: int) -> None:
    """Class by class, M is filled and all but one object of each slab freed again.

    The slabs can go neither back nor to another class: nearly M for every class. Classes get
    smaller, an eighth of a power of two at a time, so that whoever splits blocks uses the holes.
    """
    kept: list[int] = []
    held = 0
    for n in range(classes):
        events.mark("step")
        size = round(largest * 2 ** -(n // 8) * (1 - (n % 8) / 16))
        objects = [events.alloc(size) for _ in range((load - held) // size)]
        per_slab = max(1, slab // size)
        for at, block in enumerate(objects):
            if at % per_slab == 0:
                kept.append(block)
                held += size
            else:
                events.free(block)
    for block in kept:
        events.free(block)


def larger_later(events: Events, steps: int, blocks: int, size: int, growth: int) -> None:
    """A first step whose plan fits one request only: later steps ask for a little more.

    For the first request of a step the arena planned is held, and it lies idle while the pool
    serves all the others: 2 M.
    """
    for n in range(steps):
        events.mark("step")
        live = [events.alloc(size + (growth if n and at else 0)) for at in range(blocks)]
        for block in live:
            events.free(block)
