# SPDX-License-Identifier: Apache-2.0
"""Fragmentation bombs: for each placement strategy, requests that it serves as badly as possible.

M is the maximum of live bytes, the option `load`. A bomb is a fixed sequence, so it relies on its
target placing blocks one after another on an empty device.

Theory: Robson, An estimate of the store size necessary for dynamic storage allocation, JACM
18(3), 1971; Bounds for some functions concerning dynamic storage allocation, JACM 21(3), 1974;
Worst case fragmentation of first fit and best fit storage allocation strategies, Computer Journal
20(3), 1977; Knuth, The Art of Computer Programming 1, section 2.5, exercises 36 to 43; Wilson,
Johnstone, Neely and Boles, Dynamic storage allocation: a survey and critical review, IWMM 1995.
"""

from __future__ import annotations

from collections.abc import Callable

from allocbench.workloads.events import Events

KIB, MIB = 1 << 10, 1 << 20

_Keep = Callable[[int, int], bool]  # offset of a block and its size, in units -> whether it is kept


def robson(events: Events, load: int, unit: int, doublings: int) -> None:
    """Blocks that double from phase to phase, with one of each pair kept: M (1 + doublings / 2).

    Robson's lower bound for any allocator that cannot move blocks (1974), in its static form. In
    every aligned range of two blocks one survives, so that no hole fits the next size, and half of
    M is requested again in blocks of twice the size. An allocator that maps pages on demand avoids
    the doublings above the page size, because it can move wholly free pages.
    """
    _double(events, load, unit, doublings, 0, lambda offset, range_: True)


def buddy(events: Events, load: int, unit: int, doublings: int) -> None:
    """Like robson, but with one byte more per block and with holes that only a buddy cannot use.

    A byte above a power of two doubles the block of a buddy allocator. Of two neighboring aligned
    ranges, one keeps its first block and the other its last. Between them is a hole of twice the
    next size, whose halves belong to different buddies. A buddy allocator needs 2 M (1 + doublings
    / 2), and one that coalesces any neighbors about M.
    """
    _double(events, load, unit, doublings, 1, lambda offset, range_: offset // range_ % 2 == 0)


def _double(
    events: Events, load: int, unit: int, doublings: int, over: int, keeps_first: _Keep
) -> None:
    """Phases of doubling sizes; in each aligned range, the first or the last live block is kept.

    Offsets, in units, are those of a buddy allocator that fills an empty region from its begin.
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
        size_asked = unit * size + over
        end = -(-end // size) * size
        while held + size_asked <= load:
            live.append((end, size_asked, events.alloc(size_asked)))
            end, held = end + size, held + size_asked
    for _, _, block in live:
        events.free(block)


def best_fit(events: Events, rounds: int, smallest: int, pin: int, page: int) -> None:
    """Pinned holes, each a page larger than the one before: nearly M n for n rounds.

    A request larger than every hole gets memory of its own, in whole pages. A small request goes
    where best fit prefers it, into the rest after the large block, and stays when that block is
    freed. After Robson (1977): best fit may need nearly M n for requests of up to n units (Knuth
    2.5, exercise 42). `pin` and the rest match PyTorch's pool for requests above 1 MiB in segments
    of 2 MiB pages.
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
    """Blocks slightly smaller than twice the size of the next requests, with pins between them.

    TensorFlow does not split a chunk unless it is at least twice as large as needed: half of each
    chunk is lost, and the other half of M needs new memory, 1.5 M in total. An allocator that
    splits chunks can use the rest for the second half of the requests.
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
    """Blocks freed and requested again with a size between two classes of TLSF.

    TLSF searches from the next class up, where every block is large enough, and so misses the
    blocks that fit exactly. The block that was freed last, the only one of its own class that it
    examines, is slightly too small: 2 M.
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
    """One block at a time, each smaller than the one before: free lists by size keep all of them.

    With n sizes that is (n + 1) / 2 times M; an allocator that splits blocks needs only the first
    one.
    """
    for n in range(sizes, 0, -1):
        events.mark("step")
        events.free(events.alloc(n * step))


def one_of_each_slab(events: Events, load: int, largest: int, classes: int, slab: int) -> None:
    """Class by class, fill M, then free all but one object of each slab.

    The slabs can neither be given back nor serve another class: nearly M for every class. The
    classes get smaller, an eighth of a power of two at a time, so an allocator that splits blocks
    can use the holes.
    """
    kept: list[int] = []
    held = 0
    for n in range(classes):
        events.mark("step")
        size = round(largest * 2 ** -(n // 8) * (1 - (n % 8) / 16))
        objects = [events.alloc(size) for _ in range((load - held) // size)]
        per_slab = max(1, slab // size)
        for index, block in enumerate(objects):
            if index % per_slab == 0:
                kept.append(block)
                held += size
            else:
                events.free(block)
    for block in kept:
        events.free(block)


def larger_later(events: Events, steps: int, blocks: int, size: int, growth: int) -> None:
    """Later steps request slightly more, so the plan of the first step fits only one request.

    The planned arena is held for the first request of each step and is otherwise unused, while best
    fit serves all other requests: 2 M.
    """
    for n in range(steps):
        events.mark("step")
        live = [events.alloc(size + (growth if n and index else 0)) for index in range(blocks)]
        for block in live:
            events.free(block)
