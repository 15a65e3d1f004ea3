# SPDX-License-Identifier: Apache-2.0
"""How well two traces of the same program agree, event by event and in their peaks."""

from __future__ import annotations

from collections import Counter, defaultdict
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
class Match:
    """How well two traces agree: `captured`, the one under test, and `recorded`, the reference.

    matched: events in a longest common subsequence of the two, as `agreement` defines it.
    captured_events, recorded_events: allocs and frees in each.
    captured_peak, recorded_peak: max loads in bytes, of the sizes as compared.
    missed: for each size that `recorded` allocates more often, how many times more.
    """

    matched: int
    captured_events: int
    recorded_events: int
    captured_peak: int
    recorded_peak: int
    missed: dict[int, int]

    @property
    def peak_error(self) -> float:
        """(captured peak - recorded peak) / recorded peak; 0 when nothing was recorded."""
        return self.captured_peak / self.recorded_peak - 1 if self.recorded_peak else 0.0

    @property
    def precision(self) -> float:
        """Fraction of the captured events that were recorded, in order."""
        return self.matched / self.captured_events if self.captured_events else 1.0

    @property
    def recall(self) -> float:
        """Fraction of the recorded events that were captured, in order."""
        return self.matched / self.recorded_events if self.recorded_events else 1.0


def agreement(captured: Trace, recorded: Trace, rounding: int = 1, smallest: int = 0) -> Match:
    """Compare two traces by their allocs and frees, in order, ignoring block ids.

    Two events are equal if both allocate, or both free, a block of the same size. Consecutive frees
    have no meaningful order and are sorted by size. `matched` is the length of a longest common
    subsequence of equal events, the classical measure of `diff`: no alignment matches more. (A
    matched alloc and a matched free may belong to different blocks of the same size: what is
    compared is the sequence of sizes, which is what an allocator sees.)

    rounding: sizes are rounded up to multiples of it. Use 512 if one trace is a recording of
        PyTorch's allocator, whose history contains rounded sizes.
    smallest: blocks that are smaller than this after rounding are ignored in both traces.

    Time is proportional to the product of the lengths, with at least 64 events at once: about a
    second for 100,000 events in each trace. Raises TraceError for a rounding below 1.
    """
    if rounding < 1:
        raise TraceError(f"sizes cannot be rounded to multiples of {rounding}")
    left, right = (_symbols(trace, rounding, smallest) for trace in (captured, recorded))
    missed = Counter(size for op, size in right if op == ALLOC)
    missed.subtract(size for op, size in left if op == ALLOC)
    return Match(
        matched=common(left, right),
        captured_events=len(left),
        recorded_events=len(right),
        captured_peak=_peak(left),
        recorded_peak=_peak(right),
        missed={size: count for size, count in sorted(missed.items()) if count > 0},
    )


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


def _symbols(trace: Trace, rounding: int, smallest: int) -> list[Symbol]:
    """The allocs and frees of a trace, with consecutive frees sorted by size."""
    size_of: dict[int, int] = {}
    symbols: list[Symbol] = []
    events = zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    for op, block, size in events:
        if op == ALLOC:
            size_of[block] = -(-size // rounding) * rounding
        if op in (ALLOC, FREE) and size_of[block] >= smallest:
            symbols.append((op, size_of[block]))
    ordered: list[Symbol] = []
    for op, group in groupby(symbols, key=itemgetter(0)):
        run = list(group)
        ordered += sorted(run) if op == FREE else run
    return ordered


def _peak(symbols: list[Symbol]) -> int:
    load = peak = 0
    for op, size in symbols:
        load += size if op == ALLOC else -size
        peak = max(peak, load)
    return peak
