# SPDX-License-Identifier: Apache-2.0
"""Where the steps of a program begin, which keep what accumulates.

Steps are those of the trace's marks. Where no marks are, such as in a loop that only evaluates,
they are the repetitions of the last events. The layers of a model repeat, too: a program that
loads it, or runs its forward pass, keeps more with each layer (see `_are_layers`). Steps of
different sizes repeat nothing; each of them uses memory that it frees again, so they are cycles of
that memory (see `_cycles`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads import ALLOC, FREE, MARK, Trace
from allocbench.workloads.block_origins import BACKWARD, GRADIENTS, names_at, origins
from allocbench.workloads.trace import spans

LATE = 3
"""What accumulates is kept by each of this many steps or repetitions before the last."""
_LATEST = 100_000  # events in which a repetition is looked for
_HIGH, _LOW = 1 / 3, 1 / 10
"""Shares of the range of temporary memory: a cycle rises above the one, and falls below the other.

The range is from the least to the 90th percentile over the later half of the events, so that a few
higher peaks and the start of the program do not count.
"""
_RISING = 3 / 4
"""If this share of the cycles rises higher than those before, a sequence or a batch grows."""

Ints: TypeAlias = NDArray[np.int64]
Unit: TypeAlias = Literal["step", "repetition", "cycle"]


@dataclass(frozen=True, eq=False)
class StepBegins:
    """The events at which steps begin, in order, and what they are: marked, repeated or cycles."""

    begins: Ints
    unit: Unit


def lasting(trace: Trace) -> tuple[Ints, Ints]:
    """The event of each alloc, in order, and that of its free, or len(trace) if there is none.

    If a program frees most of its memory after its last alloc, it ends; these frees do not count.
    """
    allocs, ends = spans(trace.op, trace.block)
    size = trace.size[allocs]
    late = (ends > allocs.max(initial=0)) & (ends < len(trace))
    is_end = size[late].sum() > size[ends == len(trace)].sum()
    return allocs, np.where(late & is_end, len(trace), ends)


def steps_of(trace: Trace, end: int, allocs: Ints, ends: Ints) -> Iterator[StepBegins]:
    """The steps until an event, the surest first; only if there are enough of them.

    allocs, ends: see `lasting`.
    """
    marked = np.flatnonzero((trace.op[:end] == MARK) & (trace.block[:end] == trace.step_label))
    if len(marked) > LATE + 1:
        yield StepBegins(marked, "step")
    last = min(end, int(allocs.max(initial=-1)) + 1)
    found: list[tuple[Unit, Ints]] = [
        ("repetition", _repetitions(trace, stop, allocs, ends))
        for stop in dict.fromkeys((end, last))
    ]
    if end == len(trace):  # what comes after an event shows whether a program goes on to grow
        found.append(("cycle", _cycles(trace, last, allocs, ends)))
    for unit, begins in found:
        if len(begins) > LATE + 1:
            yield StepBegins(begins, unit)


def all_steps(trace: Trace) -> list[StepBegins]:
    """The steps of the whole trace, the surest first; empty if there are not enough of them."""
    return list(steps_of(trace, len(trace), *lasting(trace)))


def _may_be_parts(begins: Ints, allocs: Ints, ends: Ints, count: int) -> bool:
    """Whether what repeats may be the parts of one pass, such as layers, instead of steps.

    A pass goes once through what lasts, such as weights. So it has no more parts than there are
    such blocks, and a step makes at least as many allocs. count: number of events of the trace.
    """
    lasting = np.count_nonzero((allocs < begins[0]) & (ends == count))
    of_each = np.diff(np.searchsorted(allocs, begins))
    return bool(len(begins) <= lasting and np.median(of_each) < lasting)


def _cycles(trace: Trace, end: int, allocs: Ints, ends: Ints) -> Ints:
    """The events before `end` at which memory that is freed again has fallen: there, cycles begin.

    Blocks that are never freed do not count, so that this memory is the same in each step, however
    much a program accumulates. Empty if memory only rises and falls once.
    """
    change = np.zeros(len(trace) + 1, np.int64)
    freed = ends < len(trace)
    change[allocs[freed]] = trace.size[allocs[freed]]
    change[ends[freed]] = -trace.size[allocs[freed]].astype(np.int64)
    level = change[:end].cumsum()
    later = level[end // 2 :]
    if not len(later):
        return np.empty(0, np.int64)
    floor = int(later.min())
    span = float(np.quantile(later, 0.9)) - floor
    beyond = np.flatnonzero((level >= floor + _HIGH * span) | (level <= floor + _LOW * span))
    low = level[beyond] <= floor + _LOW * span
    begins = beyond[1:][low[1:] & ~low[:-1]]
    peaks = np.maximum.reduceat(level, begins)[:-1] if len(begins) else begins
    rises = np.mean(np.diff(peaks) > 0) if len(peaks) > 1 else 1
    if not span or rises >= _RISING or _may_be_parts(begins, allocs, ends, len(trace)):
        return begins[:0]
    return begins


def _repetitions(trace: Trace, end: int, allocs: Ints, ends: Ints) -> Ints:
    """The events at which the repetitions begin that the last events before one consist of.

    Empty if there are fewer than `LATE` + 1, or if they may be the layers of a model.
    """
    events = np.flatnonzero(trace.op[:end] <= FREE)[-_LATEST:]
    freed = np.zeros(len(trace) + 1, np.int64)
    freed[ends] = trace.size[allocs]
    size = np.where(trace.op == ALLOC, trace.size, 0).astype(np.int64) - freed[:-1]
    tokens = np.unique(size[events], return_inverse=True)[1].ravel() * (len(trace.labels) + 1)
    if trace.label is not None:
        tokens += np.where(trace.op[events] == ALLOC, trace.label[events], 0)
    period, length = _period(tokens[::-1].tolist())
    if not period:
        return np.empty(0, np.int64)
    begins = events[len(events) - length :: period]
    inside = (allocs >= begins[-2]) & (allocs < begins[-1])
    if not (inside & (ends < end)).any() or _are_layers(trace, begins, end, allocs, ends):
        return np.empty(0, np.int64)
    return begins


def _are_layers(trace: Trace, begins: Ints, end: int, allocs: Ints, ends: Ints) -> bool:
    """Whether repetitions before an event may be the layers of a model, not steps.

    They are if what they keep belongs to a backward pass, as gradients do, or to other modules each
    time, or if the same blocks were freed earlier, as those of the steps before are. Where none of
    this is known, they may be layers if they keep more than they free.
    """
    kept, before = (
        (allocs >= begin) & (allocs < following) & (ends >= end)
        for begin, following in ((begins[-2], begins[-1]), (begins[-3], begins[-2]))
    )
    modules, others = (
        set(names_at(trace, trace.module, allocs[part])) - {""} for part in (kept, before)
    )
    if np.isin(origins(trace).kind[kept], (BACKWARD, GRADIENTS)).any():
        return True
    if _may_be_parts(begins, allocs, ends, len(trace)):
        return True
    if modules:
        return modules != others
    alike = np.unique(trace.size[allocs], return_inverse=True)[1].ravel() * len(trace.labels)
    if trace.label is not None:
        alike += trace.label[allocs]
    earlier = (allocs < begins[0]) & (ends < end)
    if np.count_nonzero(np.isin(alike[earlier], alike[kept])) >= len(begins):
        return True
    temporary = (allocs >= begins[-2]) & (allocs < begins[-1]) & (ends < end)
    size = trace.size[allocs].astype(np.int64)
    return int(size[kept].sum()) > int(size[temporary].sum())


def _period(tokens: list[int]) -> tuple[int, int]:
    """The period of the longest beginning that repeats, and its length; (0, 0) for none.

    A beginning counts if it repeats `LATE` + 2 times. Z-algorithm: Gusfield, *Algorithms on
    Strings, Trees and Sequences*, 1997, section 1.4.
    """
    count = len(tokens)
    same = [0] * count
    left = right = 0
    best = 0, 0
    for n in range(1, count):
        length = min(right - n, same[n - left]) if n < right else 0
        while n + length < count and tokens[length] == tokens[n + length]:
            length += 1
        same[n] = length
        if n + length > right:
            left, right = n, n + length
        if length >= (LATE + 1) * n and n + length > best[1]:
            best = n, n + length
    return best
