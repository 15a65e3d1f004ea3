# SPDX-License-Identifier: Apache-2.0
"""Seeded synthetic workloads, each isolating one effect; `GENERATORS` lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from allocbench.workloads.generator import SEED, Generator, Option
from allocbench.workloads.synthetic import bombs, shapes

_KNUTH = "Robson 1971, 1974, 1977; Knuth, TAOCP 1, 2.5"


def _count(name: str, default: int, help_: str, least: int = 1, most: int | None = None) -> Option:
    return Option(name, "count", default, help_, least, most)


def _bytes(name: str, default: int, help_: str, least: int = 1) -> Option:
    return Option(name, "bytes", default, help_, least)


KIB, MIB = shapes.KIB, shapes.MIB
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
        shapes.random,
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
        shapes.ramp,
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
        shapes.sawtooth,
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
        shapes.straddler,
        _count("over", 1, "bytes above the bounds; 0 for the bounds themselves", least=0),
        _count("copies", 4, "number of blocks of each size"),
        _count("repeats", 10, "number of repetitions"),
        SEED,
    ),
    _synthetic(
        "ping-pong",
        "blocks freed on a different stream than their own",
        "copies overlapped with computation; record_stream in PyTorch",
        shapes.ping_pong,
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
        bombs.robson,
        _LOAD,
        _UNIT,
        _DOUBLINGS,
    ),
    _synthetic(
        "bomb-buddy",
        "holes whose halves are not buddies, sizes just above powers of two (target: buddy)",
        _KNUTH,
        bombs.buddy,
        _LOAD,
        _UNIT,
        _DOUBLINGS,
    ),
    _synthetic(
        "bomb-pages",
        "robson up to the page size: a small block keeps each page"
        " (targets: expandable, planned, rmm_pool)",
        _KNUTH,
        bombs.robson,
        replace(_LOAD, default=32 * MIB),
        replace(_UNIT, default=KIB),
        replace(_DOUBLINGS, default=11),
    ),
    _synthetic(
        "bomb-best-fit",
        "ever larger holes, each pinned by best fit itself (targets: caching, cupy_pool)",
        _KNUTH,
        bombs.best_fit,
        _count("rounds", 64, "holes"),
        _bytes("smallest", 10 * MIB + 512 * KIB, "bytes of the first large block"),
        _bytes("pin", MIB + 256 * KIB, _PIN),
        _bytes("page", 2 * MIB, "growth from one large block to the next"),
    ),
    _synthetic(
        "bomb-bfc",
        "chunks slightly too small to be split (target: bfc)",
        "the rule of TensorFlow's BFCAllocator: split chunks that are twice as large",
        bombs.half_chunks,
        _count("blocks", 2000, "number of large blocks"),
        _bytes("size", 256 * KIB, "bytes of the requests that follow", least=1024),
        _bytes("pin", 512, _PIN),
    ),
    _synthetic(
        "bomb-tlsf",
        "the same size again, missed because it is between two classes (target: tlsf)",
        "the good fit of Masmano et al., ECRTS 2004",
        bombs.same_again,
        _count("blocks", 2000, "blocks"),
        _bytes("size", 255 * KIB, "bytes of each block, between two classes", least=1024),
        _bytes("pin", KIB, f"{_PIN}; with `size`, a divisor of a segment"),
    ),
    _synthetic(
        "bomb-free-lists",
        "every size used once (target: free_lists)",
        "sizes that lists by exact size cannot reuse",
        bombs.every_size_once,
        _count("sizes", 1000, "number of sizes"),
        _bytes("step", 64 * KIB, "difference between consecutive sizes"),
    ),
    _synthetic(
        "bomb-slab",
        "one object kept in each slab, class after class (target: slab)",
        "Bonwick, USENIX Summer 1994: a slab serves one class",
        bombs.one_of_each_slab,
        _bytes("load", 32 * MIB, "maximum live bytes", least=MIB),
        _bytes("largest", 64 * KIB, "bytes of the objects of the first class", least=1024),
        _count("classes", 24, "number of classes, eight per power of two", most=64),
        _bytes("slab", 2 * MIB, "bytes of a slab"),
    ),
    _synthetic(
        "bomb-arena",
        "later steps that do not fit the plan of the first (target: arena)",
        "plans made from the first step",
        bombs.larger_later,
        _count("steps", 8, "steps"),
        _count("blocks", 1000, "blocks per step"),
        _bytes("size", MIB, "bytes of a block in the first step"),
        _bytes("growth", 64 * KIB, "growth of the blocks in later steps"),
    ),
)
