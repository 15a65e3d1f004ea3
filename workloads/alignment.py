# SPDX-License-Identifier: Apache-2.0
"""How far the requests of two traces of the same program agree, in order."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

import numpy as np

from allocbench.workloads.trace import ALLOC, FREE, Trace, TraceError

_CACHE = 256 << 20  # bytes

Symbol = tuple[int, int]  # op, and the size of the block allocated or freed


@dataclass(frozen=True)
class EqualEvents:
    """How many allocs and frees two traces have, and how many agree in order, see `agreement`."""

    old: int
    new: int
    matched: int


def agreement(old: Trace, new: Trace, rounding: int = 1) -> EqualEvents:
    """Compare two traces by their allocs and frees, in order, ignoring block ids.

    Two events are equal if both allocate, or both free, a block of the same size. Consecutive frees
    have no meaningful order and are sorted by size. Those that agree are a longest common
    subsequence of equal events, the classical measure of `diff`: no alignment matches more. (A
    matched alloc and a matched free may belong to different blocks of the same size: what is
    compared is the sequence of sizes, which is what an allocator sees.)

    rounding: sizes are rounded up to multiples of it. Use 512 if one trace is a profiler trace of
        PyTorch, which contains rounded sizes.

    Time is proportional to the product of the lengths, with at least 64 events at once: about a
    second for 100,000 events in each trace. Raises TraceError for a rounding below 1.
    """
    if rounding < 1:
        raise TraceError(f"sizes cannot be rounded to multiples of {rounding}")
    left, right = (_symbols(trace, rounding) for trace in (old, new))
    return EqualEvents(len(left), len(right), common(left, right))


def common(left: list[Symbol], right: list[Symbol]) -> int:
    """Length of a longest common subsequence (Hyyrö, Bit-parallel LCS-length computation, 2004).

    The state has a bit for each position of `left`: 0 where the next longer subsequence ends.
    """
    begin = 0
    while begin < min(len(left), len(right)) and left[begin] == right[begin]:
        begin += 1
    end = 0
    most = min(len(left), len(right)) - begin
    while end < most and left[-1 - end] == right[-1 - end]:
        end += 1
    left, right = left[begin : len(left) - end], right[begin : len(right) - end]
    places = _places(left)
    everywhere = (1 << len(left)) - 1
    row = everywhere
    for symbol in right:
        here = row & places(symbol)
        row = ((row + here) | (row - here)) & everywhere
    return begin + end + len(left) - row.bit_count()


def _places(symbols: list[Symbol]) -> Callable[[Symbol], int]:
    """A function from a symbol to an integer with a bit set for each of its positions."""
    where = defaultdict[Symbol, list[int]](list)
    for place, symbol in enumerate(symbols):
        where[symbol].append(place)
    length = len(symbols) // 8 + 1  # bytes

    @lru_cache(maxsize=max(1, _CACHE // length))
    def places(symbol: Symbol) -> int:
        bits = np.zeros(8 * length, np.bool_)
        bits[where.get(symbol, [])] = True
        return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")

    return places


def _symbols(trace: Trace, rounding: int) -> list[Symbol]:
    """The allocs and frees of a trace, with consecutive frees sorted by size."""
    size_of: dict[int, int] = {}
    symbols: list[Symbol] = []
    events = zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    for op, block, size in events:
        if op == ALLOC:
            size_of[block] = -(-size // rounding) * rounding
        if op in (ALLOC, FREE):
            symbols.append((op, size_of[block]))
    ordered: list[Symbol] = []
    for op, group in groupby(symbols, key=itemgetter(0)):
        run = list(group)
        ordered += sorted(run) if op == FREE else run
    return ordered
