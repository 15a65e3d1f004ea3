# SPDX-License-Identifier: Apache-2.0
"""Memory that grows from step to step: a leak, or a cache without a limit.

Steps are marks, repetitions or cycles (see `repetitions`). Blocks of one size accumulate if each
late step keeps some, and blocks of any size if they are kept from early on, and as much early as
late.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.programs import LEAST_GROWTH
from allocbench.questions.failure import operators
from allocbench.questions.repetitions import (
    LATE,
    Ints,
    StepBegins,
    Unit,
    all_steps,
    lasting,
    steps_of,
)
from allocbench.replays.capacity import STEP, roomy
from allocbench.replays.runner import fresh
from allocbench.workloads import ALLOC, Trace
from allocbench.workloads.block_origins import names_at

_LEVELS = ("reserved", "requested")
_LONG_RUN = 100_000  # steps; slower growth is not called a leak
_PARTS, _LATE_PARTS = 8, 6
"""Where sizes or steps differ, the steps are in so many parts, of which the last ones count."""
_EVEN = 1 / 3, 2 / 3
"""The least and the most of what these keep that the first half of them may keep."""
_WORK, _WORK_OF_DIFFERING = 2, 8
"""In cycles, this many times what is kept must be freed: loading a model keeps more of its work."""
_BEYOND = 4
"""A reserve grows without need if it grows by this many times what the load needs, on top of it."""
_BY_SIZE, _BY_OPERATOR = ["operator", "size"], ["operator"]
_CONSTRUCTOR = re.compile(r" __init__(?:;|$)")


@dataclass(frozen=True)
class Growth:
    """Blocks of one operator that accumulate: each of the last steps left some alive.

    sizes: bytes of the smallest and of the largest of them. bytes: of all. steps: number of steps
    with such blocks. caller: the line of the program that leads to the last of them, "" if it is
    the operator or not known.
    """

    operator: str
    sizes: tuple[int, int]
    blocks: int
    bytes: int
    steps: int
    caller: str = ""


@dataclass(frozen=True)
class RepeatedGrowth:
    """What grows until an event, most bytes first.

    rate: bytes that a step keeps: the fewest of the late steps, or the mean where their blocks
    differ in size. steps: how many there are until then. unit: what they are.
    """

    growths: tuple[Growth, ...]
    rate: int
    steps: int
    unit: Unit
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
        sure = self.unit == "step" or trace.coverage.begins == "start"
        return sure and self.full_after(need, capacity) <= _LONG_RUN


def leak_of(trace: Trace, event: int | None = None) -> RepeatedGrowth | None:
    """What accumulates until an event, or until the end; None if nothing does.

    Only blocks that are alive when the trace makes its last request count. Those of the first step
    belong to the program's lasting state, and those of the last one may still be freed later. Where
    the steps before the event are too few, those after it also show what accumulates. Repetitions
    and cycles in constructors do not count in a program that did not end: it made its model.
    """
    until = len(trace) if event is None else event
    allocs, ends = lasting(trace)
    for end in dict.fromkeys((until, len(trace))):
        for steps in steps_of(trace, end, allocs, ends):
            for rule in _RULES[steps.unit]:
                found, rate = rule(trace, steps, end, allocs, ends)
                found = found[found["event"] < until]
                if rate < LEAST_GROWTH or not len(found):
                    continue
                if steps.unit == "step" or not _constructed(trace, found["event"].to_numpy()):
                    growths = sorted(_growths(found), key=lambda one: one.bytes, reverse=True)
                    before = int(np.count_nonzero(steps.begins < until))
                    return RepeatedGrowth(tuple(growths), rate, before, steps.unit, until)
    return None


def _constructed(trace: Trace, found: Ints) -> bool:
    """Whether a program that did not end only runs constructors in Python from the first of these
    allocs to the last.
    """
    if trace.coverage.ends == "exit":
        return False
    made = np.array([_CONSTRUCTOR.search(label) is not None for label in trace.labels], bool)
    allocs = found.min() + np.flatnonzero(trace.op[found.min() : found.max() + 1] == ALLOC)
    columns = [made[column[allocs]] for column in (trace.label, trace.stack) if column is not None]
    return bool(columns) and bool(np.any(columns, axis=0).all())


def _blocks(
    trace: Trace, begins: Ints, end: int, allocs: Ints, ends: Ints
) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """The blocks before `end` that outlive their step, and the bytes of the others by step.

    Columns: event, size, operator, caller, kept (never freed), step (0: before the first).
    """
    until = allocs < end
    allocs, ends = allocs[until], ends[until]
    size, step = trace.size[allocs].astype(np.int64), np.searchsorted(begins, allocs, side="right")
    lasts = (ends == len(trace)) | (np.searchsorted(begins, ends, side="right") > step)
    work = np.bincount(step[~lasts], size[~lasts], minlength=len(begins) + 1).astype(np.float64)
    stacks = names_at(trace, trace.stack, allocs[lasts])
    blocks = pd.DataFrame(
        {
            "event": allocs[lasts],
            "size": size[lasts],
            "operator": operators(trace, allocs[lasts]),
            "caller": [stack.partition(";")[0] if ";" in stack else "" for stack in stacks],
            "kept": ends[lasts] == len(trace),
            "step": step[lasts],
        }
    )
    return blocks, work


def _of_equal_size(
    trace: Trace, steps: StepBegins, end: int, allocs: Ints, ends: Ints
) -> tuple[pd.DataFrame, int]:
    """Blocks of the same size that each late step keeps, and the fewest bytes of these steps."""
    blocks, _ = _blocks(trace, steps.begins, end, allocs, ends)
    late = range(len(steps.begins) - LATE, len(steps.begins))
    found = _kept_by_each(blocks, _BY_SIZE, late)
    return found, int(min(found["size"][found["step"] == one].sum() for one in late))


def _of_any_size(
    trace: Trace, steps: StepBegins, end: int, allocs: Ints, ends: Ints
) -> tuple[pd.DataFrame, int]:
    """Blocks that are kept from early on and at an even rate, and the mean bytes of a step."""
    count = len(steps.begins) - 1  # the last step may not be complete
    if count < _PARTS:
        return pd.DataFrame({"event": []}), 0
    edges = np.linspace(0, count, _PARTS + 1).astype(np.int64)
    blocks, work = _blocks(trace, steps.begins[edges], end, allocs, ends)
    late = range(_PARTS - _LATE_PARTS + 1, _PARTS + 1)
    freed = work[late.start : late.stop].sum()
    kept = blocks["size"][blocks["kept"] & blocks["step"].isin(late)].sum()
    for by, times in ((_BY_SIZE, _WORK), (_BY_OPERATOR, _WORK_OF_DIFFERING)):
        found = _kept_by_each(blocks, by, late)
        size = found["size"].where(found["step"].isin(late), 0)
        early = size.where(found["step"] < np.mean(late), 0)
        share = early.groupby(found["group"]).sum() / size.groupby(found["group"]).sum()
        found = found[found["group"].map(share).between(*_EVEN)]
        if len(found) and (steps.unit == "step" or freed >= times * kept):
            rate = int(size[found.index].sum()) // int(count - edges[late.start - 1])
            return found[found["step"] > 0], rate
    return found, 0


def _kept_by_each(blocks: pd.DataFrame, by: list[str], steps: range) -> pd.DataFrame:
    """The kept blocks of the groups of which each of the steps keeps some, with a column `group`.

    A group by size does not count if as many of its blocks were freed in later steps: these are
    pages of requests, or what other passes keep for a while.
    """
    grouped = blocks.assign(group=blocks.groupby(by, sort=False).ngroup())
    late = grouped[grouped["kept"] & grouped["step"].isin(steps)]
    number = late.drop_duplicates(["group", "step"])["group"].value_counts()
    enough = number.index[number == len(steps)]
    if by == _BY_SIZE:
        share = grouped.groupby("group")["kept"].mean()
        enough = enough[share[enough] > 1 / 2]
    return grouped[grouped["kept"] & grouped["group"].isin(enough)]


_RULES: Mapping[Unit, tuple[Callable[..., tuple[pd.DataFrame, int]], ...]] = {
    "step": (_of_equal_size, _of_any_size),
    "repetition": (_of_equal_size,),
    "cycle": (_of_any_size,),
}


def _growths(found: pd.DataFrame) -> list[Growth]:
    return [
        Growth(
            operator=str(one["operator"].iloc[0]),
            sizes=(int(one["size"].min()), int(one["size"].max())),
            blocks=len(one),
            bytes=int(one["size"].sum()),
            steps=one["step"].nunique(),
            caller=str(one["caller"].iloc[-1]),
        )
        for _, one in found.groupby("group", sort=False)
    ]


@dataclass(frozen=True)
class Reserve:
    """Reserved bytes that grow more than the load. Bytes.

    rate, load_rate: mean growth in a step, of the load also that of the largest until then.
    reserved, load: when the last step begins. steps: how
    many there are. unit: what they are.
    """

    rate: int
    load_rate: int
    reserved: int
    load: int
    steps: int
    unit: Unit


def growing_reserve(
    trace: Trace, allocator: str, device: str, steps: Sequence[StepBegins] | None = None
) -> Reserve | None:
    """What an allocator reserves more in each step than the load grows; None if it does not.

    It counts if each of the last `LATE` steps adds a segment of `STEP` bytes or more to what the
    load adds, at the step's beginning or to the largest until then, and several times as much as
    that. The device has room for everything. steps: those of the trace, if they are known. Raises
    SpecError.
    """
    found = all_steps(trace) if steps is None else steps
    if not found:
        return None
    opened = fresh(allocator, roomy(device, trace), trace)
    timeline = allocators.replay(trace, opened, samples=len(trace)).timeline
    for one in found:
        begins = one.begins[one.begins > 0]
        before = np.searchsorted(timeline["event"], begins) - 1
        reserved, load = (timeline[name].astype(np.int64) for name in _LEVELS)
        peak = np.maximum.accumulate(load)
        reserved, load, peak = reserved[before], load[before], peak[before]
        grown, needed = np.diff(reserved), np.maximum(np.diff(load), np.diff(peak))
        if np.all((grown - needed >= np.maximum(STEP, _BEYOND * needed))[-LATE:]):
            rates = int(grown.mean()), int(needed.mean())
            count = len(one.begins)
            return Reserve(*rates, int(reserved[-1]), int(load[-1]), count, one.unit)
    return None


def sentence(
    leak: RepeatedGrowth, need: int | None = None, capacity: int = 0, device: str = ""
) -> str:
    """What grows, and when it fills a device of this capacity.

    need: bytes that the steps of the trace need there; None if they have filled it.
    """
    size = units.size
    full = f"in {leak.unit} {leak.steps:,}"
    if need is not None:
        full = f"after {leak.unit} {leak.full_after(need, capacity):,}{device and f' on {device}'}"
    largest, *others = leak.growths
    by = f", called by {one_line(largest.caller)}," if largest.caller else ""
    more = f" and {units.count(len(others), 'more group')}" if others else ""
    if len(others) == 1:
        more = f" and {_left(others[0])}"
    about, ended = "", ""
    if leak.unit == "cycle":
        about, ended = "about ", " A cycle ends where memory falls back to its floor."
    return (
        f"The program grows by {about}{size(leak.rate)} a {leak.unit}: full {full}.{ended} A leak,"
        f" or a cache without a limit: {_left(largest)}{by}{more} are never"
        f" freed, {size(leak.bytes)} in all."
    )


def _left(growth: Growth) -> str:
    sizes = " to ".join(dict.fromkeys(units.size(one) for one in growth.sizes))
    by = f" by {growth.operator}" if growth.operator else ""
    return f"{growth.blocks:,} blocks of {sizes}{by}"


def reserve_sentence(found: Reserve, allocator: str) -> str:
    """What an allocator reserves more and more."""
    size, step = units.size, found.unit
    return (
        f"{allocator} reserves {size(found.rate)} more in each {step}, while the load grows by"
        f" {size(max(0, found.load_rate))}: {size(found.reserved)} are reserved for"
        f" {size(found.load)} when {step} {found.steps:,} begins."
    )
