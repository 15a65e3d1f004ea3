# SPDX-License-Identifier: Apache-2.0
"""What the numbers in the text of an out-of-memory error prove.

With X requested, F free on the card, R held by the allocator but free, A allocated to live blocks,
P in use by the process and T of the card:

- X > F + R: the memory is full; no rearrangement of the free bytes is enough.
- F < X <= F + R: enough bytes are free, but the card alone has too few; some of R is in pieces.
- X <= F: the card had enough when the error was written.
- T - F - P is in use by others, and P - A - R by this process outside of its allocator.

A limit that the program has set bounds F as well. Numbers are ranges, and a verdict is certain if
it holds for all values in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from allocbench.workloads.error_texts import Amount, ErrorText

FULL: Final = "full"
PIECES: Final = "pieces"
ENOUGH: Final = "enough"
SHORT: Final = "short"
UNKNOWN: Final = "unknown"
Kind = Literal["full", "pieces", "enough", "short", "unknown"]
_LIKELY, _POSSIBLE = 4, 1.5


@dataclass(frozen=True)
class ErrorVerdict:
    """What the numbers of an error mean.

    kind: full: the memory cannot hold the request, however it is arranged. pieces: enough is free,
    but only together with free blocks of the allocator. enough: the card alone had enough. short:
    the card alone has too little; what else is free is not known. unknown: the text does not say.
    certain: whether arithmetic proves it. missing: bytes that the card lacks, for full also with
    the allocator's free blocks. held: R, for pieces. likely: for pieces, how likely it is that
    another arrangement of them is enough. limited: whether a limit, not the card, is reached.
    others: in use by other processes. outside: of this process, outside of its allocator.
    together: the sum of both, if only that is known.
    """

    kind: Kind
    certain: bool = False
    missing: Amount | None = None
    held: Amount | None = None
    likely: str = ""
    limited: bool = False
    others: Amount | None = None
    outside: Amount | None = None
    together: Amount | None = None


def verdict(error: ErrorText) -> ErrorVerdict:
    """What the numbers of an error prove, and what they only suggest."""
    total, free, process = error.total, error.free, error.process
    others = outside = together = held = None
    if error.allocated is not None and error.unallocated is not None:
        held = error.allocated + error.unallocated
    if total is not None and free is not None and process is not None:
        others = _positive(total - free - process)
    if process is not None and held is not None:
        outside = _positive(process - held)
    elif total is not None and free is not None and held is not None:
        together = _positive(total - free - held)
    return replace(_judged(error), others=others, outside=outside, together=together)


def _positive(difference: Amount) -> Amount | None:
    """A difference of printed numbers; None if they contradict each other."""
    return difference if difference.high >= 0 else None


def _judged(error: ErrorText) -> ErrorVerdict:
    """What is known of the request."""
    requested = error.requested
    if error.needed and error.available and error.needed.low > error.available.high:
        return ErrorVerdict(FULL, certain=True, missing=error.needed - error.available)
    if not error.message or requested is None:
        return ErrorVerdict(UNKNOWN)
    free, limited = _free(error)
    most, by_limit = _most(error, free)
    if most is not None and requested.low > most.high:
        proven = (error.least or requested.low) > most.high
        return ErrorVerdict(FULL, proven, missing=requested - most, limited=by_limit)
    if free is None:
        return ErrorVerdict(UNKNOWN)
    if requested.low > free.high:
        return replace(_short(error, requested, free), limited=limited)
    if requested.high <= free.low:
        return ErrorVerdict(ENOUGH, certain=True)
    return ErrorVerdict(UNKNOWN)


def _short(error: ErrorText, requested: Amount, free: Amount) -> ErrorVerdict:
    """What is known where the card alone has too little."""
    missing, held = requested - free, error.unallocated
    if held is None:
        return ErrorVerdict(SHORT, missing=missing)
    if error.private is not None:
        held += error.private
    if requested.high > free.low + held.low:  # the printed digits do not decide it
        return ErrorVerdict(UNKNOWN)
    hole = error.largest_free
    if hole is not None and hole.high < requested.low:
        return ErrorVerdict(PIECES, certain=True, missing=missing, held=held)
    times = held.middle / max(1, missing.middle)
    likely = "likely" if times >= _LIKELY else "possible" if times >= _POSSIBLE else "unlikely"
    return ErrorVerdict(PIECES, missing=missing, held=held, likely=likely)


def _free(error: ErrorText) -> tuple[Amount | None, bool]:
    """What the allocator could still get, and whether a limit decides it."""
    free = error.free
    if error.allowed and error.allocated and error.unallocated and error.program != "BFC":
        left = error.allowed - error.allocated - error.unallocated
        left = Amount(max(0, left.low), max(0, left.high))
        if free is None or left.high < free.low:
            return left, True
    return free, False


def _most(error: ErrorText, free: Amount | None) -> tuple[Amount | None, bool]:
    """The most that a request could get if all free bytes were one piece, and if that is a limit.

    Each bound is above the true number, so the smallest of them counts.
    """
    private = error.private or Amount(0, 0)
    bounds: list[tuple[Amount, bool]] = []
    if free is not None and error.unallocated is not None:
        bounds.append((free + error.unallocated + private, False))
    for size, is_limit in ((error.total, False), (error.allowed, True)):
        if size is not None:
            bounds.append((size - error.allocated + private if error.allocated else size, is_limit))
    positive = [(Amount(max(0, bound.low), max(0, bound.high)), limit) for bound, limit in bounds]
    return min(positive, key=lambda bound: bound[0].high) if positive else (None, False)
