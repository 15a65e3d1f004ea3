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

from dataclasses import replace

from allocbench.base.error_text import HOST, SHARED, Amount, ErrorText, HeldBuffer, exact
from allocbench.questions.explain import Explanation, explain
from allocbench.replays.runner import Runner
from allocbench.reports.advice.error_text import ErrorVerdict
from allocbench.workloads.error_texts import state

_LIKELY, _POSSIBLE = 4, 1.5


def on_card(error: ErrorText, size: int) -> ErrorText:
    """The error on a card with so many bytes, if the text does not say how many it has."""
    if error.total is not None or error.device in (HOST, SHARED):
        return error
    limit = (
        exact(int(size * error.share)) if error.share and error.allowed is None else error.allowed
    )
    return replace(error, total=exact(size), allowed=limit)


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
    elif total is not None and free is not None and held is not None and not error.limit_leaves:
        together = _positive(total - free - held)
    found = replace(_judged(error), others=others, outside=outside, together=together)
    theirs = others or together
    if total is None or theirs is None or 2 * theirs.low <= total.high or found.limited:
        return found
    lacks = error.requested is not None and free is not None and error.requested.low > free.high
    if not lacks or found.of_all or found.beyond_card:
        return found
    return replace(found, kind="others", certain=False)


def _positive(difference: Amount) -> Amount | None:
    """A difference of printed numbers; None if they contradict each other."""
    return difference if difference.high >= 0 else None


def _judged(error: ErrorText) -> ErrorVerdict:
    """What is known of the request, and of all that the program needs."""
    if error.tokens and error.tokens[0] > error.tokens[1]:
        return ErrorVerdict("full", certain=True, of_all=True)
    of_all, of_request = _of_all(error), _of_request(error)
    known = [one for one in (of_all, of_request) if one.kind != "unknown"]
    return next((one for one in known if one.certain), known[0] if known else of_request)


def _of_all(error: ErrorText) -> ErrorVerdict:
    """Whether all that the program needs at once is more than what is left for it."""
    needed, room = error.needed, error.available or error.allowed or error.total
    if needed is None or room is None or needed.low <= room.high:
        return ErrorVerdict("unknown")
    proven = error.gaps is not None and (needed - error.gaps).low > room.high
    limited = room is error.allowed
    return ErrorVerdict("full", proven, missing=needed - room, of_all=True, limited=limited)


def _of_request(error: ErrorText) -> ErrorVerdict:
    requested = error.requested
    if not error.message or requested is None:
        return ErrorVerdict("unknown")
    free, limited = _free(error)
    most, by_limit = _most(error, free)
    if most is not None and requested.low > most.high:
        beyond = _beyond_card(error)
        proven = not beyond and (error.least or requested.low) > most.high
        if by_limit and error.share:  # another setting may be in force
            proven = requested.low > (error.total or most).high
        return ErrorVerdict(
            "full", proven, missing=requested - most, limited=by_limit, beyond_card=beyond
        )
    if free is None:
        return ErrorVerdict("unknown")
    if requested.low > free.high:
        return replace(_short(error, requested, free), limited=limited)
    cut = error.program == "PyTorch" and error.unallocated is None  # a limit may have followed
    if requested.high <= free.low and not cut:
        return ErrorVerdict("enough", certain=True)
    return ErrorVerdict("unknown")


def _short(error: ErrorText, requested: Amount, free: Amount) -> ErrorVerdict:
    """What is known where the card alone has too little."""
    missing, held = requested - free, error.unallocated
    if held is None:
        return ErrorVerdict("short", missing=missing)
    if error.private is not None:
        held += error.private
    if requested.high > free.low + held.low:  # the printed digits do not decide it
        return ErrorVerdict("unknown")
    hole = error.largest_free
    if hole is not None and hole.high < requested.low:
        return ErrorVerdict("pieces", certain=True, missing=missing, held=held)
    times = held.middle / max(1, missing.middle)
    likely = "likely" if times >= _LIKELY else "possible" if times >= _POSSIBLE else "unlikely"
    return ErrorVerdict("pieces", missing=missing, held=held, likely=likely)


def _free(error: ErrorText) -> tuple[Amount | None, bool]:
    """What the allocator could still get, and whether a limit decides it."""
    free = error.free
    if error.allowed and error.allocated and error.unallocated and not error.limit_leaves:
        left = (error.allowed - error.allocated - error.unallocated).at_least_0
        if free is None or left.high < free.low:
            return left, True
    return free, False


def _most(error: ErrorText, free: Amount | None) -> tuple[Amount | None, bool]:
    """The most that a request could get if all free bytes were one piece, and if that is a limit.

    Each bound is above the true number, so the smallest of them counts.
    """
    private = error.private or exact(0)
    bounds: list[tuple[Amount, bool]] = []
    if free is not None and error.unallocated is not None:
        bounds.append((free + error.unallocated + private, False))
    for size, is_limit in ((error.total, False), (error.allowed, True)):
        if size is not None:
            bounds.append((size - error.allocated + private if error.allocated else size, is_limit))
    positive = [(bound.at_least_0, limit) for bound, limit in bounds]
    return min(positive, key=lambda bound: bound[0].high) if positive else (None, False)


def _beyond_card(error: ErrorText) -> bool:
    """Whether the allocator holds more than the card has, and so uses memory of the host, too."""
    if error.total is None or error.allocated is None:
        return False
    held = error.allocated + (error.unallocated or exact(0))
    return held.low > error.total.high


def explained(error: ErrorText) -> Explanation | None:
    """What `explain` finds in the memory of a dump; None without a dump that says enough.

    The memory is taken over by `bfc` on a device as large as the limit of the dump. None also if
    `bfc` serves the request.
    """
    trace = state(error)
    if trace is None or error.allowed is None:
        return None
    found = explain(Runner(trace, f"sim:{error.allowed.low}"), "bfc")
    return found if found and found.failure.event == len(trace) - 1 else None


def by_operator(error: ErrorText) -> list[HeldBuffer]:
    """What holds the memory: the buffers that the text lists, or the operators of its dump.

    The largest first. Empty if the text names none.
    """
    if error.buffers:
        return list(error.buffers)
    held = dict[str, int]()
    for segment in error.segments:
        for block in segment.blocks:
            if block.allocated:
                held[block.operator] = held.get(block.operator, 0) + block.size
    if not any(held):
        return []
    rows = [HeldBuffer(exact(size), name) for name, size in held.items()]
    return sorted(rows, key=lambda row: row.size.low, reverse=True)
