# SPDX-License-Identifier: Apache-2.0
"""Memory that grows from step to step: a leak, or a cache without a limit.

Steps are those of the trace's marks. Where no marks are, such as in a loop that only evaluates,
they are the repetitions of the last events. The layers of a model repeat, too: a program that
loads it, or runs its forward pass, keeps more with each layer (see `_are_layers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.programs.program import LEAST_GROWTH
from allocbench.questions.failure import operators
from allocbench.replays.capacity import STEP, roomy
from allocbench.replays.runner import fresh
from allocbench.workloads import ALLOC, FREE, MARK, Trace
from allocbench.workloads.block_origins import BACKWARD, GRADIENTS, names_at, origins
from allocbench.workloads.trace import spans

_STEPS = 3
"""A group grows if it left blocks in each of this many steps before the last."""
_LEVELS = ("reserved", "requested")
_LONG_RUN = 100_000  # steps; slower growth is not called a leak
_LATEST = 100_000  # events in which a repetition is looked for

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Growth:
    """Blocks of one operator and size that accumulate: each of the last steps left some alive.

    blocks: those alive; size: bytes of each; steps: number of steps with such blocks. caller: the
    line of the program that leads to the largest of them, "" if it is the operator or not known.
    """

    operator: str
    size: int
    blocks: int
    steps: int
    caller: str = ""

    @property
    def bytes(self) -> int:
        """Requested bytes of all of them."""
        return self.blocks * self.size


@dataclass(frozen=True)
class RepeatedGrowth:
    """What grows until an event, most bytes first. rate: the fewest bytes that a late step kept.

    steps: how many there are until then. marked: whether marks begin them; else they are
    repetitions.
    """

    growths: tuple[Growth, ...]
    rate: int
    steps: int
    marked: bool
    event: int

    @property
    def bytes(self) -> int:
        """Requested bytes of all blocks that accumulated."""
        return sum(growth.bytes for growth in self.growths)

    def full_after(self, need: int, capacity: int) -> int:
        """The step after which a device is full. need: bytes that the steps until now need."""
        return max(1, self.steps + (capacity - need) // self.rate)

    def counts(self, trace: Trace, need: int, capacity: int) -> bool:
        """Whether it fills a device in a run of usual length.

        In a part of a program, repetitions may be those of the layers of a model.
        """
        sure = self.marked or trace.coverage.begins == "start"
        return sure and self.full_after(need, capacity) <= _LONG_RUN


def leak_of(trace: Trace, event: int | None = None) -> RepeatedGrowth | None:
    """What accumulates until an event, or until the end; None if nothing does.

    Only blocks that the trace never frees count. Those of the first step belong to the program's
    lasting state, and those of the last few may still be freed later, so a group counts if each of
    the `_STEPS` steps before the last one left some. Where the steps before the event are too few,
    those after it also show what accumulates.
    """
    until = len(trace) if event is None else event
    allocs, ends = spans(trace.op, trace.block)
    for end in dict.fromkeys((until, len(trace))):
        for begins, marked in _steps(trace, end, allocs, ends):
            if found := _growths(trace, begins, end, until, allocs, ends):
                groups, rate = found
                steps = int(np.count_nonzero(begins < until))
                return RepeatedGrowth(tuple(groups), rate, steps, marked, until)
    return None


def _steps(trace: Trace, end: int, allocs: Ints, ends: Ints) -> Iterator[tuple[Ints, bool]]:
    """The events at which steps begin, and whether they are marks; if there are enough of them."""
    marked = np.flatnonzero((trace.op[:end] == MARK) & (trace.block[:end] == trace.step_label))
    if len(marked) > _STEPS + 1:
        yield marked, True
    repeated = _repetitions(trace, end, allocs, ends)
    if len(repeated) > _STEPS + 1:
        yield repeated, False


@dataclass(frozen=True)
class Reserve:
    """Reserved bytes that grow more than the load. Bytes.

    rate, load_rate: mean growth in a step. reserved, load: when the last step begins. steps: how
    many there are. marked: whether marks begin them; else they are repetitions.
    """

    rate: int
    load_rate: int
    reserved: int
    load: int
    steps: int
    marked: bool


def growing_reserve(trace: Trace, allocator: str, device: str) -> Reserve | None:
    """What an allocator reserves more in each step than the load grows; None if it does not.

    It counts if each of the last `_STEPS` steps adds a segment of `STEP` bytes or more to what the
    load adds. The device has room for everything. Raises SpecError.
    """
    for begins, marked in _steps(trace, len(trace), *spans(trace.op, trace.block)):
        opened = fresh(allocator, roomy(device, trace), trace)
        timeline = allocators.replay(trace, opened, samples=len(trace)).timeline
        before = np.searchsorted(timeline["event"], begins[begins > 0]) - 1
        reserved, load = (timeline[name][before].astype(np.int64) for name in _LEVELS)
        grown, needed = np.diff(reserved), np.diff(load)
        if np.all((grown - np.maximum(needed, 0))[-_STEPS:] >= STEP):
            rates = int(grown.mean()), int(needed.mean())
            return Reserve(*rates, int(reserved[-1]), int(load[-1]), len(begins), marked)
    return None


def _growths(
    trace: Trace, begins: Ints, end: int, until: int, allocs: Ints, ends: Ints
) -> tuple[list[Growth], int] | None:
    """The groups that grow and the rate, given the events at which steps begin; or None.

    They are found from the events before `end`; their blocks are those before `until`.
    """
    alive = np.flatnonzero((allocs < end) & (ends == len(trace)))
    when = np.searchsorted(begins, allocs[alive], side="right")
    groups: dict[tuple[str, int], Counter[int]] = {}
    until_then: dict[tuple[str, int], Counter[int]] = {}
    callers: dict[tuple[str, int], str] = {}
    rows = zip(
        *(operators(trace, allocs[alive]), names_at(trace, trace.stack, allocs[alive])),
        *(trace.size[allocs[alive]].tolist(), when.tolist(), (allocs[alive] < until).tolist()),
        strict=True,
    )
    for name, stack, size, step, is_early in rows:
        key = name, size
        groups.setdefault(key, Counter())[step] += 1
        if is_early:
            until_then.setdefault(key, Counter())[step] += 1
        if ";" in stack:
            callers.setdefault(key, stack.partition(";")[0])
    wanted = range(len(begins) - _STEPS, len(begins))
    found = [
        Growth(*key, count.total(), len(count), callers.get(key, ""))
        for key, count in until_then.items()
        if groups[key].keys() >= set(wanted)
    ]
    if not found:
        return None
    found.sort(key=lambda growth: growth.bytes, reverse=True)
    kept = {(growth.operator, growth.size) for growth in found}
    rate = min(
        sum(key[1] * count[step] for key, count in groups.items() if key in kept) for step in wanted
    )
    return (found, rate) if rate >= LEAST_GROWTH else None


def _repetitions(trace: Trace, end: int, allocs: Ints, ends: Ints) -> Ints:
    """The events at which the repetitions begin that the last events before one consist of.

    Empty if there are fewer than `_STEPS` + 1, or if they may be the layers of a model.
    """
    events = np.flatnonzero(trace.op[:end] <= FREE)[-_LATEST:]
    freed = np.zeros(len(trace) + 1, np.int64)
    freed[ends] = trace.size[allocs]
    size = np.where(trace.op == ALLOC, trace.size, 0).astype(np.int64) - freed[:-1]
    label = np.zeros(len(trace), np.int64) if trace.label is None else trace.label.astype(np.int64)
    _, tokens = np.unique(
        np.stack([size[events], np.where(trace.op[events] == ALLOC, label[events], 0)]),
        axis=1,
        return_inverse=True,
    )
    period, length = _period(tokens.ravel()[::-1].tolist())
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
    if modules:
        return modules != others
    size = trace.size[allocs].astype(np.int64)
    label = np.zeros(len(size), np.int64) if trace.label is None else trace.label[allocs]
    known = {*zip(size[kept].tolist(), label[kept].tolist(), strict=True)}
    earlier = allocs < begins[0]
    freed = [
        (one, name) in known and bool(is_freed)
        for one, name, is_freed in zip(
            size[earlier].tolist(), label[earlier].tolist(), ends[earlier] < end, strict=True
        )
    ]
    if sum(freed) >= len(begins):
        return True
    temporary = (allocs >= begins[-2]) & (allocs < begins[-1]) & (ends < end)
    return int(size[kept].sum()) > int(size[temporary].sum())


def _period(tokens: list[int]) -> tuple[int, int]:
    """The period of the longest beginning that repeats, and its length; (0, 0) for none.

    A beginning counts if it repeats `_STEPS` + 2 times. Z-algorithm: Gusfield, *Algorithms on
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
        if length >= (_STEPS + 1) * n and n + length > best[1]:
            best = n, n + length
    return best


def sentence(
    leak: RepeatedGrowth, need: int | None = None, capacity: int = 0, device: str = ""
) -> str:
    """What grows, and when it fills a device of this capacity.

    need: bytes that the steps of the trace need there; None if they have filled it.
    """
    size, step = units.size, "step" if leak.marked else "repetition"
    full = f"in {step} {leak.steps:,}"
    if need is not None:
        full = f"after {step} {leak.full_after(need, capacity):,}{device and f' on {device}'}"
    largest, *others = leak.growths
    by = f" by {largest.operator}" if largest.operator else ""
    by += f", called by {one_line(largest.caller)}," if largest.caller else ""
    more = f" and {units.count(len(others), 'more group')}" if others else ""
    return (
        f"The program grows by {size(leak.rate)} a {step}: full {full}. A leak, or a cache without"
        f" a limit: {largest.blocks:,} blocks of {size(largest.size)}{by}{more} are never freed,"
        f" {size(leak.bytes)} in all."
    )


def reserve_sentence(found: Reserve, allocator: str) -> str:
    """What an allocator reserves more and more."""
    size, step = units.size, "step" if found.marked else "repetition"
    return (
        f"{allocator} reserves {size(found.rate)} more in each {step}, while the load grows by"
        f" {size(max(0, found.load_rate))}: {size(found.reserved)} are reserved for"
        f" {size(found.load)} when {step} {found.steps:,} begins."
    )
