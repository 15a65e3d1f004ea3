# SPDX-License-Identifier: Apache-2.0
"""Seeded synthetic workloads, each isolating one effect; `GENERATORS` lists them.

The first ones are simple patterns, each showing one behavior of real programs and nothing else.
The others are fragmentation bombs: for each placement strategy, requests that it serves as badly as
possible. M is the maximum of live bytes, the option `load`. A bomb is a fixed sequence, so it
relies on its target placing blocks one after another on an empty device.

Theory: Robson, An estimate of the store size necessary for dynamic storage allocation, JACM
18(3), 1971; Bounds for some functions concerning dynamic storage allocation, JACM 21(3), 1974;
Worst case fragmentation of first fit and best fit storage allocation strategies, Computer Journal
20(3), 1977; Knuth, The Art of Computer Programming 1, section 2.5, exercises 36 to 43; Wilson,
Johnstone, Neely and Boles, Dynamic storage allocation: a survey and critical review, IWMM 1995.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from allocbench.workloads.events import Events
from allocbench.workloads.generator import SEED, Generator, Option

if TYPE_CHECKING:
    from numpy.random import RandomState

KIB, MIB = 1 << 10, 1 << 20
_KNUTH = "Robson 1971, 1974, 1977; Knuth, TAOCP 1, 2.5"
_Keep = Callable[[int, int], bool]  # offset of a block and its size, in units -> whether it is kept


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
    events.free_each(block for block, _ in live)


def ramp(events: Events, blocks: int, size: int, repeats: int, order: str, seed: int) -> None:
    """Equal blocks, allocated one after the other, then freed one after the other."""
    draw = _seeded(seed)
    for _ in range(repeats):
        events.mark("step")
        live = events.alloc_each(blocks, size)
        if order == "lifo":
            live.reverse()
        elif order == "shuffled":
            live = [live[index] for index in draw.permutation(blocks)]
        events.free_each(live)


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
        live = events.alloc_each(max(1, (peak - held) // size), size)
        events.free_each(over)
        every = -(-len(live) // kept) if kept else len(live) + 1
        over = live[every - 1 :: every]
        held = len(over) * size
        for index, block in enumerate(live, 1):
            if index % every:
                events.free(block)
    events.free_each(over)


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
        events.free_each(live[index] for index in draw.permutation(len(live)))


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
    events.free_each(block for _, _, block in live)


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
    events.free_each(pins)


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
    events.free_each(large)
    small = [events.alloc(size - 512 * (n >= blocks)) for n in range(2 * blocks)]
    events.free_each((*small, *pins))


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
    events.free_each(live)
    events.free_each(events.alloc_each(blocks, size) + pins)


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
        objects = events.alloc_each((load - held) // size, size)
        per_slab = max(1, slab // size)
        for index, block in enumerate(objects):
            if index % per_slab == 0:
                kept.append(block)
                held += size
            else:
                events.free(block)
    events.free_each(kept)


def larger_later(events: Events, steps: int, blocks: int, size: int, growth: int) -> None:
    """Later steps request slightly more, so the plan of the first step fits only one request.

    The planned arena is held for the first request of each step and is otherwise unused, while best
    fit serves all other requests: 2 M.
    """
    for n in range(steps):
        events.mark("step")
        live = [events.alloc(size + (growth if n and index else 0)) for index in range(blocks)]
        events.free_each(live)


def _count(name: str, default: int, help_: str, least: int = 1, most: int | None = None) -> Option:
    return Option(name, "count", default, help_, least, most)


def _bytes(name: str, default: int, help_: str, least: int = 1) -> Option:
    return Option(name, "bytes", default, help_, least)


_LOAD = _bytes("load", 512 * MIB, "maximum live bytes", least=MIB)
_UNIT = _bytes("unit", 64 * KIB, "bytes of the first blocks", least=1024)
_DOUBLINGS = _count("doublings", 8, "number of times that the block size doubles", most=30)
_PIN = "bytes of the small blocks that separate the others"


def _synthetic(
    name: str, summary: str, source: str, write: Callable[..., None], *options: Option
) -> Generator:
    return Generator(name, "synthetic", summary, source, options, write)


GENERATORS = (
    _synthetic(
        "random",
        "random sizes up to a maximum, freed in random order",
        "random_allocations of RMM's benchmarks, its chances and limits",
        random,
        _count("allocs", 10_000, "number of allocs"),
        _bytes("max_size", 64 * MIB, "largest request in bytes"),
        _bytes("max_live", 16_000 * MIB, "live bytes stay below this"),
        _count(
            "alloc_percent", 73, "probability of an alloc while there is room, in percent", most=100
        ),
        SEED,
    ),
    _synthetic(
        "ramp",
        "equal blocks allocated and freed again: how memory grows, and whether it shrinks",
        "the simplest program",
        ramp,
        _count("blocks", 2000, "live blocks at the peak"),
        _bytes("size", MIB, "bytes of each block"),
        _count("repeats", 3, "number of ramps"),
        Option(
            "order", "choice", "fifo", "order of the frees", choices=("fifo", "lifo", "shuffled")
        ),
        SEED,
    ),
    _synthetic(
        "sawtooth",
        "a peak of equal blocks in each step, of another size than in the step before",
        "batches of changing size",
        sawtooth,
        _count("teeth", 24, "steps"),
        _bytes("peak", 1024 * MIB, "live bytes at the peak of a step"),
        _bytes("smallest", 512 * KIB, "smallest block in bytes"),
        _bytes("largest", 32 * MIB, "largest block in bytes"),
        _count("kept", 4, "blocks of a step that survive into the next", least=0),
        SEED,
    ),
    _synthetic(
        "straddler",
        "sizes just above the bounds of size classes: the cost of rounding",
        "powers of two, 512 B, 1, 2 and 10 MiB: the rounding of the allocators compared",
        straddler,
        _count("over", 1, "bytes above the bounds; 0 for the bounds themselves", least=0),
        _count("copies", 4, "number of blocks of each size"),
        _count("repeats", 10, "number of repetitions"),
        SEED,
    ),
    _synthetic(
        "ping-pong",
        "blocks freed on a different stream than their own",
        "copies overlapped with computation; record_stream in PyTorch",
        ping_pong,
        _count("streams", 4, "number of streams, used in turn", most=65535),
        _count("rounds", 10_000, "total number of buffers"),
        _bytes("size", 16 * MIB, "bytes of the largest buffer; the smallest is half of it"),
        _count("buffers", 64, "number of live buffers"),
        _count("step", 100, "rounds per step"),
        SEED,
    ),
    _synthetic(
        "robson",
        "doubling sizes with one of each pair kept: bad for any allocator that cannot move blocks",
        _KNUTH,
        robson,
        _LOAD,
        _UNIT,
        _DOUBLINGS,
    ),
    _synthetic(
        "bomb-buddy",
        "holes whose halves are not buddies, sizes just above powers of two (target: buddy)",
        _KNUTH,
        buddy,
        _LOAD,
        _UNIT,
        _DOUBLINGS,
    ),
    _synthetic(
        "bomb-pages",
        "robson up to the page size: a small block keeps each page"
        " (targets: expandable, planned, rmm_pool, xla_vmm)",
        _KNUTH,
        robson,
        replace(_LOAD, default=32 * MIB),
        replace(_UNIT, default=KIB),
        replace(_DOUBLINGS, default=11),
    ),
    _synthetic(
        "bomb-best-fit",
        "ever larger holes, each pinned by best fit itself (targets: caching, cupy_pool)",
        _KNUTH,
        best_fit,
        _count("rounds", 64, "holes"),
        _bytes("smallest", 10 * MIB + 512 * KIB, "bytes of the first large block"),
        _bytes("pin", MIB + 256 * KIB, _PIN),
        _bytes("page", 2 * MIB, "growth from one large block to the next"),
    ),
    _synthetic(
        "bomb-bfc",
        "chunks slightly too small to be split (target: bfc)",
        "the rule of TensorFlow's BFCAllocator: split chunks that are twice as large",
        half_chunks,
        _count("blocks", 2000, "number of large blocks"),
        _bytes("size", 256 * KIB, "bytes of the requests that follow", least=1024),
        _bytes("pin", 512, _PIN),
    ),
    _synthetic(
        "bomb-tlsf",
        "the same size again, missed because it is between two classes (target: tlsf)",
        "the good fit of Masmano et al., ECRTS 2004",
        same_again,
        _count("blocks", 2000, "blocks"),
        _bytes("size", 255 * KIB, "bytes of each block, between two classes", least=1024),
        _bytes("pin", KIB, f"{_PIN}; with `size`, a divisor of a segment"),
    ),
    _synthetic(
        "bomb-free-lists",
        "every size used once (targets: free_lists, mlx_cache)",
        "sizes that lists by exact size cannot reuse",
        every_size_once,
        _count("sizes", 1000, "number of sizes"),
        _bytes("step", 64 * KIB, "difference between consecutive sizes"),
    ),
    _synthetic(
        "bomb-slab",
        "one object kept in each slab, class after class (target: slab)",
        "Bonwick, USENIX Summer 1994: a slab serves one class",
        one_of_each_slab,
        _bytes("load", 32 * MIB, "maximum live bytes", least=MIB),
        _bytes("largest", 64 * KIB, "bytes of the objects of the first class", least=1024),
        _count("classes", 24, "number of classes, eight per power of two", most=64),
        _bytes("slab", 2 * MIB, "bytes of a slab"),
    ),
    _synthetic(
        "bomb-arena",
        "later steps that do not fit the plan of the first (target: arena)",
        "plans made from the first step",
        larger_later,
        _count("steps", 8, "steps"),
        _count("blocks", 1000, "blocks per step"),
        _bytes("size", MIB, "bytes of a block in the first step"),
        _bytes("growth", 64 * KIB, "growth of the blocks in later steps"),
    ),
)
