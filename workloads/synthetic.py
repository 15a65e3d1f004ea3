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
from typing import TYPE_CHECKING, TypeVar

from allocbench.workloads.events import Events
from allocbench.workloads.generator import SEED, Generator, Value, option, options_of, with_defaults

if TYPE_CHECKING:
    from numpy.random import RandomState

KIB, MIB = 1 << 10, 1 << 20
_KNUTH = "Robson 1971, 1974, 1977; Knuth, TAOCP 1, 2.5"
_Keep = Callable[[int, int], bool]  # offset of a block and its size, in units -> whether it is kept
_Write = TypeVar("_Write", bound=Callable[..., None])

GENERATORS: list[Generator] = []

_LOAD = option("bytes", 512 * MIB, "maximum live bytes", least=MIB)
_UNIT = option("bytes", 64 * KIB, "bytes of the first blocks", least=1024)
_DOUBLINGS = option("count", 8, "number of times that the block size doubles", most=30)
_PIN = "bytes of the small blocks that separate the others"


def _synthetic(
    source: str, name: str = "", summary: str = "", **defaults: Value
) -> Callable[[_Write], _Write]:
    """Lists a function in GENERATORS: its parameters are options, its first line is the summary."""

    def add(write: _Write) -> _Write:
        known = name or write.__name__.replace("_", "-")
        title = (write.__doc__ or "").partition("\n")[0].rstrip(".")
        told = summary or title[:1].lower() + title[1:]
        options = with_defaults(options_of(write), defaults)
        GENERATORS.append(Generator(known, "synthetic", told, source, options, write))
        return write

    return add


def _seeded(seed: int) -> RandomState:
    """A generator with frozen streams, so a seed always gives the same trace."""
    from numpy.random import RandomState

    return RandomState(seed)


@_synthetic("random_allocations of RMM's benchmarks, its chances and limits")
def random(
    events: Events,
    allocs: int = option("count", 10_000, "number of allocs"),
    max_size: int = option("bytes", 64 * MIB, "largest request in bytes"),
    max_live: int = option("bytes", 16_000 * MIB, "live bytes stay below this"),
    alloc_percent: int = option(
        "count", 73, "probability of an alloc while there is room, in percent", most=100
    ),
    seed: int = SEED,
) -> None:
    """Random sizes up to a maximum, freed in random order.

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


@_synthetic("the simplest program")
def ramp(
    events: Events,
    blocks: int = option("count", 2000, "live blocks at the peak"),
    size: int = option("bytes", MIB, "bytes of each block"),
    repeats: int = option("count", 3, "number of ramps"),
    order: str = option(
        "choice", "fifo", "order of the frees", choices=("fifo", "lifo", "shuffled")
    ),
    seed: int = SEED,
) -> None:
    """Equal blocks allocated and freed again: how memory grows, and whether it shrinks."""
    draw = _seeded(seed)
    for _ in range(repeats):
        events.mark("step")
        live = events.alloc_each(blocks, size)
        if order == "lifo":
            live.reverse()
        elif order == "shuffled":
            live = [live[index] for index in draw.permutation(blocks)]
        events.free_each(live)


@_synthetic("batches of changing size")
def sawtooth(
    events: Events,
    teeth: int = option("count", 24, "steps"),
    peak: int = option("bytes", 1024 * MIB, "live bytes at the peak of a step"),
    smallest: int = option("bytes", 512 * KIB, "smallest block in bytes"),
    largest: int = option("bytes", 32 * MIB, "largest block in bytes"),
    kept: int = option("count", 4, "blocks of a step that survive into the next", least=0),
    seed: int = SEED,
) -> None:
    """A peak of equal blocks in each step, of another size than in the step before.

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


@_synthetic("powers of two, 512 B, 1, 2 and 10 MiB: the rounding of the allocators compared")
def straddler(
    events: Events,
    over: int = option("count", 1, "bytes above the bounds; 0 for the bounds themselves", least=0),
    copies: int = option("count", 4, "number of blocks of each size"),
    repeats: int = option("count", 10, "number of repetitions"),
    seed: int = SEED,
) -> None:
    """Sizes just above the bounds of size classes: the cost of rounding.

    The bounds at which allocators change their rounding: powers of two from 512 B to 64 MiB, small
    multiples of 512 B and of 2 MiB, and 1 MiB and 10 MiB, where PyTorch changes its pool and its
    segments. All blocks are live together.
    """
    bounds = {512 << power for power in range(18)}
    bounds |= {512 * n for n in range(1, 16)} | {2 * MIB * n for n in range(1, 16)}
    draw = _seeded(seed)
    sizes = sorted(bounds) * copies
    for _ in range(repeats):
        events.mark("step")
        live = [events.alloc(sizes[index] + over) for index in draw.permutation(len(sizes))]
        events.free_each(live[index] for index in draw.permutation(len(live)))


@_synthetic("copies overlapped with computation; record_stream in PyTorch")
def ping_pong(
    events: Events,
    streams: int = option("count", 4, "number of streams, used in turn", most=65535),
    rounds: int = option("count", 10_000, "total number of buffers"),
    size: int = option(
        "bytes", 16 * MIB, "bytes of the largest buffer; the smallest is half of it"
    ),
    buffers: int = option("count", 64, "number of live buffers"),
    step: int = option("count", 100, "rounds per step"),
    seed: int = SEED,
) -> None:
    """Blocks freed on a different stream than their own.

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


@_synthetic(_KNUTH)
def robson(
    events: Events, load: int = _LOAD, unit: int = _UNIT, doublings: int = _DOUBLINGS
) -> None:
    """Doubling sizes with one of each pair kept: bad for any allocator that cannot move blocks.

    Robson's lower bound (1974), in its static form: M (1 + doublings / 2). In
    every aligned range of two blocks one survives, so that no hole fits the next size, and half of
    M is requested again in blocks of twice the size. An allocator that maps pages on demand avoids
    the doublings above the page size, because it can move wholly free pages.
    """
    _double(events, load, unit, doublings, 0, lambda offset, range_: True)


@_synthetic(_KNUTH)
def bomb_buddy(
    events: Events, load: int = _LOAD, unit: int = _UNIT, doublings: int = _DOUBLINGS
) -> None:
    """Holes whose halves are not buddies, sizes just above powers of two (target: buddy).

    Like robson, but with one byte more per block, which doubles the block of a buddy allocator. Of
    two neighboring aligned ranges, one keeps its first block and the other its last. Between them
    is a hole of twice the next size, whose halves belong to different buddies. A buddy allocator
    needs 2 M (1 + doublings / 2), and one that coalesces any neighbors about M.
    """
    _double(events, load, unit, doublings, 1, lambda offset, range_: offset // range_ % 2 == 0)


_synthetic(
    _KNUTH,
    "bomb-pages",
    "robson up to the page size: a small block keeps each page"
    " (targets: expandable, planned, rmm_pool, xla_vmm)",
    load=32 * MIB,
    unit=KIB,
    doublings=11,
)(robson)


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


@_synthetic(_KNUTH)
def bomb_best_fit(
    events: Events,
    rounds: int = option("count", 64, "holes"),
    smallest: int = option("bytes", 10 * MIB + 512 * KIB, "bytes of the first large block"),
    pin: int = option("bytes", MIB + 256 * KIB, _PIN),
    page: int = option("bytes", 2 * MIB, "growth from one large block to the next"),
) -> None:
    """Ever larger holes, each pinned by best fit itself (targets: caching, cupy_pool).

    Each hole is a page larger than the one before: nearly M n for n rounds. A request larger than
    every hole gets memory of its own, in whole pages. A small request goes where best fit prefers
    it, into the rest after the large block, and stays when that block is freed. After Robson
    (1977): best fit may need nearly M n for requests of up to n units (Knuth 2.5, exercise 42).
    `pin` and the rest match PyTorch's pool for requests above 1 MiB in segments of 2 MiB pages.
    """
    pins = []
    for n in range(rounds):
        events.mark("step")
        large = events.alloc(smallest + n * page)
        pins.append(events.alloc(pin))
        events.free(large)
    events.free_each(pins)


@_synthetic("the rule of TensorFlow's BFCAllocator: split chunks that are twice as large")
def bomb_bfc(
    events: Events,
    blocks: int = option("count", 2000, "number of large blocks"),
    size: int = option("bytes", 256 * KIB, "bytes of the requests that follow", least=1024),
    pin: int = option("bytes", 512, _PIN),
) -> None:
    """Chunks slightly too small to be split (target: bfc).

    Blocks slightly smaller than twice the size of the next requests, with pins between them.
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


@_synthetic("the good fit of Masmano et al., ECRTS 2004")
def bomb_tlsf(
    events: Events,
    blocks: int = option("count", 2000, "blocks"),
    size: int = option("bytes", 255 * KIB, "bytes of each block, between two classes", least=1024),
    pin: int = option("bytes", KIB, f"{_PIN}; with `size`, a divisor of a segment"),
) -> None:
    """The same size again, missed because it is between two classes (target: tlsf).

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


@_synthetic("sizes that lists by exact size cannot reuse")
def bomb_free_lists(
    events: Events,
    sizes: int = option("count", 1000, "number of sizes"),
    step: int = option("bytes", 64 * KIB, "difference between consecutive sizes"),
) -> None:
    """Every size used once (targets: free_lists, mlx_cache).

    One block at a time, each smaller than the one before: free lists by size keep all of them. With
    n sizes that is (n + 1) / 2 times M; an allocator that splits blocks needs only the first one.
    """
    for n in range(sizes, 0, -1):
        events.mark("step")
        events.free(events.alloc(n * step))


@_synthetic("Bonwick, USENIX Summer 1994: a slab serves one class")
def bomb_slab(
    events: Events,
    load: int = option("bytes", 32 * MIB, "maximum live bytes", least=MIB),
    largest: int = option("bytes", 64 * KIB, "bytes of the objects of the first class", least=1024),
    classes: int = option("count", 24, "number of classes, eight per power of two", most=64),
    slab: int = option("bytes", 2 * MIB, "bytes of a slab"),
) -> None:
    """One object kept in each slab, class after class (target: slab).

    Class by class, fill M, then free all but one object of each slab. The slabs can neither be
    given back nor serve another class: nearly M for every class. The classes get smaller, an eighth
    of a power of two at a time, so an allocator that splits blocks can use the holes.
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


@_synthetic("plans made from the first step")
def bomb_arena(
    events: Events,
    steps: int = option("count", 8, "steps"),
    blocks: int = option("count", 1000, "blocks per step"),
    size: int = option("bytes", MIB, "bytes of a block in the first step"),
    growth: int = option("bytes", 64 * KIB, "growth of the blocks in later steps"),
) -> None:
    """Later steps that do not fit the plan of the first (target: arena).

    Later steps request slightly more, so the plan fits only one request of each. The planned arena
    is held for that request and is otherwise unused, while best fit serves all others: 2 M.
    """
    for n in range(steps):
        events.mark("step")
        live = [events.alloc(size + (growth if n and index else 0)) for index in range(blocks)]
        events.free_each(live)
