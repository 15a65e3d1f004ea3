# SPDX-License-Identifier: Apache-2.0
"""What changed between two traces, or between two allocators: the parts of the peak's difference.

The peak is the moment at which reserved bytes first reach their maximum. They consist of the
requested bytes of the live blocks, what rounding adds, and free bytes in segments. If less than
half of them is in use then, the blocks are those of the highest load instead. If both the requests
and the rules differ, the requests of the new side are also replayed under the old rules: what
changes up to there is due to the program, the rest to the allocator.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.questions.failure import before
from allocbench.questions.holding import alike, blocks
from allocbench.replays.capacity import roomy
from allocbench.replays.details import INTERVALS, over_time, with_key
from allocbench.replays.recorded_settings import fixed
from allocbench.replays.runner import fresh
from allocbench.reports.rows.details import Details, join
from allocbench.reports.rows.results import records
from allocbench.workloads import ALLOC, FREE, MARK, Trace
from allocbench.workloads.alignment import EqualEvents, agreement
from allocbench.workloads.block_origins import names_at, places_of
from allocbench.workloads.trace import spans

PROGRAM, ALLOCATOR = "program", "allocator"
"""The causes of a change."""
BLOCKS, ROUNDING, SMALL, FREE_BYTES = "blocks", "rounding", "free in small segments", "free"
"""What a part consists of."""
PEAK = "peak reserved"
_NAMES = ["kind", "place", "module"]
_LINE = re.compile(r":(\d+)(?=[: ]|$)")
_SMALL_SEGMENT = 2 << 20  # bytes: PyTorch takes segments of this size for requests up to 1 MiB
_ROUNDED = 512  # bytes: profiler traces have sizes in multiples of this
_MOST_PAIRS = 10**11  # of requests that are aligned: a few seconds

Ints = NDArray[np.int64]
_Sizes = Counter[int]  # how many blocks of each size there are, in bytes


@dataclass(frozen=True, eq=False)
class Side:
    """A trace, and the spec of the allocator that replays it. name: in sentences."""

    name: str
    trace: Trace
    spec: str


@dataclass(frozen=True)
class Moment:
    """An allocator when its reserved bytes first reach their maximum, in bytes. event: from 0.

    small: free bytes in small segments of PyTorch's allocator.
    """

    event: int
    requested: int
    allocated: int
    reserved: int
    small: int

    @property
    def parts(self) -> dict[str, int]:
        """What the reserved bytes consist of, without the requested ones."""
        free = self.reserved - self.allocated
        return {
            ROUNDING: self.allocated - self.requested,
            SMALL: self.small,
            FREE_BYTES: free - self.small,
        }


@dataclass(frozen=True)
class FirstChange:
    """The first request in which two traces differ.

    event: by side, from 0, or None if it has no more requests. step: number of steps that the old
    one has begun. words: by side, what it does.
    """

    event: tuple[int | None, int | None]
    step: int
    words: tuple[str, str]


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference of two peaks, and its parts.

    rows: a part each, columns as in `frame`; their changes add up to `change`.
    between: the peak of the new requests under the old rules. device: that of the replays. first:
    None if the requests are the same. agreement: None if the traces are too long to align.
    """

    old: Side
    new: Side
    old_peak: Moment
    between: Moment
    new_peak: Moment
    rows: pd.DataFrame
    first: FirstChange | None
    agreement: EqualEvents | None
    device: str

    @property
    def change(self) -> int:
        """Bytes by which the new peak is higher than the old one."""
        return self.new_peak.reserved - self.old_peak.reserved


def diff(old: Side, new: Side, device: str) -> Difference:
    """What changed from one side to the other.

    device: that of the replays; one that is large enough takes its place where a request fails.
    Raises SpecError.
    """
    rules = fixed(old.spec, old.trace), fixed(new.spec, new.trace)
    cases = [(old.trace, rules[0]), (new.trace, rules[0]), (new.trace, rules[1])]
    if not all(allocators.completes(trace, fresh(spec, device, trace)) for trace, spec in cases):
        largest = max((old.trace, new.trace), key=lambda trace: trace.requested)
        device = roomy(device, largest)
    moments = [_moment(trace, spec, device) for trace, spec in cases]
    if any(2 * one.allocated < one.reserved for one in moments):
        moments = [_moment(trace, spec, device, at_load=True) for trace, spec in cases]
    was, between, now = moments
    rows = [
        *_held(old.trace, was.event, new.trace, between.event),
        *_others(PROGRAM, was, between),
        *_of_allocator(between, now),
    ]
    table = pd.DataFrame(rows)
    table = table[table["change"] != 0]
    order = table["change"].abs().sort_values(ascending=False, kind="stable").index
    return Difference(
        old,
        new,
        was,
        between,
        now,
        table.loc[order].reset_index(drop=True),
        _first_change(old.trace, new.trace),
        _agreement(old.trace, new.trace),
        device,
    )


def curves(found: Difference) -> Details:
    """The tables `memory`, `moments` and `free_blocks` of both sides, by the names of the sides."""
    sides = []
    for side in (found.old, found.new):
        allocator = fresh(fixed(side.spec, side.trace), found.device, side.trace)
        result = allocators.replay(side.trace, allocator, samples=INTERVALS, detail=True)
        tables = over_time(result, allocator.info.keeps_free_blocks)
        run = {"workload": "diff", "device": found.device, "allocator": side.name}
        sides.append(with_key(tables, run))
    return join(sides)


def frame(found: Difference) -> pd.DataFrame:
    """The parts, and as the last row the peak, which is their sum.

    cause, what: see the constants. kind, place, module, how, caller: of blocks, else "". old, new,
    change: bytes. old_blocks, new_blocks: null for all but blocks. old_coverage, new_coverage: what
    each trace lacks of its program, null if nothing.
    """
    peak = _row("", PEAK, found.old_peak.reserved, found.new_peak.reserved)
    rows = [*records(found.rows), peak]
    kinds = dict.fromkeys(("old", "new", "change", "old_blocks", "new_blocks"), "Int64")
    parts = {
        f"{name}_coverage": side.trace.coverage.sentence or None
        for name, side in (("old", found.old), ("new", found.new))
    }
    return pd.DataFrame([row | parts for row in rows]).astype(kinds)


def _moment(trace: Trace, spec: str, device: str, at_load: bool = False) -> Moment:
    peak = allocators.replay(trace, fresh(spec, device, trace), samples=1).peak
    again = fresh(spec, device, trace)
    event, requested, allocated = peak.event, peak.requested, peak.allocated
    if at_load:
        event = int(np.argmax(trace.load))
    if trace.layout is not None and event < len(trace.layout.block_size):
        event = max(0, len(trace.layout.block_size) - 1)  # the first with all that was held
        requested, allocated = int(trace.load[event]), int(trace.layout.block_size.sum())
    if trace.allocs:
        allocators.replay(before(trace, event + 1), again, samples=1, keep=True)
    if at_load:
        requested, allocated = again.stats().requested, again.stats().allocated
    small = sum(
        block.size
        for segment in again.snapshot()
        for block in segment.blocks
        if segment.size <= _SMALL_SEGMENT and not block.allocated
    )
    small = min(small, peak.reserved - allocated)
    return Moment(event, requested, allocated, peak.reserved, small)


def _others(cause: str, was: Moment, now: Moment) -> Iterator[dict[str, Any]]:
    """The parts beside the blocks."""
    for what, size in was.parts.items():
        yield _row(cause, what, size, now.parts[what])


def _of_allocator(was: Moment, now: Moment) -> Iterator[dict[str, Any]]:
    """The parts that are due to other rules; the same blocks may be alive at another moment."""
    yield _row(ALLOCATOR, BLOCKS, was.requested, now.requested) | {"how": "at another moment"}
    yield from _others(ALLOCATOR, was, now)


def _row(cause: str, what: str, old: int, new: int) -> dict[str, Any]:
    names = dict.fromkeys((*_NAMES, "how", "caller"), "")
    sizes = {"old": old, "new": new, "change": new - old, "old_blocks": None, "new_blocks": None}
    return {"cause": cause, "what": what, **names, **sizes}


def _held(old: Trace, was: int, new: Trace, now: int) -> Iterator[dict[str, Any]]:
    """The groups of blocks that are alive at the two moments: a kind, a line, and modules."""
    if old is new and was == now:
        return
    sides = [_named(trace) for trace in (old, new)]
    for name in _NAMES:  # what one trace does not tell does not tell blocks apart
        if not all(side[name].any() for side in sides):
            for side in sides:
                side[name] = ""
    _align_lines(*sides)
    groups = [
        _groups(side, event, len(trace))
        for side, event, trace in zip(sides, (was, now), (old, new), strict=True)
    ]
    both = pd.concat(
        [of.add_suffix(name) for of, name in zip(groups, ("_old", "_new"), strict=True)], axis=1
    )
    for row in records(both.reset_index()):
        old_bytes, new_bytes = row["alive_old"] or 0, row["alive_new"] or 0
        yield _row(PROGRAM, BLOCKS, old_bytes, new_bytes) | {
            "kind": row["kind"],
            "place": row["place_new"] if row["allocs_new"] else row["place_old"],
            "module": row["module"],
            "how": _how(row),
            "caller": (row["caller_new"] or "") if _how(row) == "new" else "",
            "old_blocks": row["blocks_old"] or 0,
            "new_blocks": row["blocks_new"] or 0,
        }


def _named(trace: Trace) -> pd.DataFrame:
    """The blocks with modules of all layers as one, and with the line that leads to their line."""
    found = blocks(trace)
    stacks = names_at(trace, trace.stack, found["begin"].to_numpy())
    callers = [stack.partition(";")[0] if ";" in stack else "" for stack in stacks]
    return found.assign(module=found["module"].map(alike), caller=callers)


def _align_lines(old: pd.DataFrame, new: pd.DataFrame) -> None:
    """Add the column `at`: the place, equal for a line of both that has only moved.

    The lines of one function and operator correspond in order; if their numbers differ, so that as
    many of their blocks as possible have the same size, or, if none has, so that the numbers of
    their blocks are alike. A file that only the old one has is the file that only the new one has.
    """
    lines = [_lines(side) for side in (old, new)]
    names = [{file.rpartition(" ")[2] for file, _ in one} for one in lines]
    gone, came = names[0] - names[1], names[1] - names[0]
    renamed = dict(zip(came, gone, strict=True)) if len(gone) == len(came) == 1 else {}
    moved = dict[str, str]()
    for function, of_new in lines[1].items():
        prefix, space, file = function[0].rpartition(" ")
        same = prefix + space + renamed.get(file, file), function[1]
        of_old = lines[0].get(same, [])
        if {place for place, _ in of_old} == {place for place, _ in of_new}:
            continue
        pairs = [(n, n) for n in range(len(of_new))]
        if len(of_old) != len(of_new):
            both = [[sizes for _, sizes in side] for side in (of_old, of_new)]
            numbers = [[Counter({0: sizes.total()}) for sizes in side] for side in both]
            pairs = _alike(*both) or _alike(*numbers)
        moved |= {of_new[second][0]: of_old[first][0] for first, second in pairs}
        for now, _ in of_new:
            moved.setdefault(now, f"new {now}")
    old["at"], new["at"] = old["place"], new["place"].map(lambda place: moved.get(place, place))


def _alike(old: list[_Sizes], new: list[_Sizes]) -> list[tuple[int, int]]:
    """The pairs of lines, in order in both, with the most blocks of the same size in all."""
    shared = [[(first & second).total() for second in new] for first in old]
    most = np.zeros((len(old) + 1, len(new) + 1), np.int64)  # of the lines from each pair on
    for first, second in product(reversed(range(len(old))), reversed(range(len(new)))):
        together = shared[first][second] + most[first + 1, second + 1]
        most[first, second] = max(together, most[first + 1, second], most[first, second + 1])
    pairs, first, second = [], 0, 0
    while first < len(old) and second < len(new) and most[first, second]:
        if most[first, second] == most[first + 1, second]:
            first += 1
        elif most[first, second] == most[first, second + 1]:
            second += 1
        else:
            pairs.append((first, second))
            first, second = first + 1, second + 1
    return pairs


def _lines(found: pd.DataFrame) -> dict[tuple[str, str], list[tuple[str, _Sizes]]]:
    """By function and operator: its lines in order, and how many blocks of each size they have."""
    of = dict[tuple[str, str], list[tuple[int, str, _Sizes]]]()
    for place, sizes in found.groupby("place")["bytes"]:
        if line := _LINE.search(str(place)):
            function = str(place)[: line.start()], str(place)[line.end() :]
            of.setdefault(function, []).append((int(line[1]), str(place), Counter(sizes)))
    return {
        function: [(place, sizes) for _, place, sizes in sorted(lines, key=itemgetter(0, 1))]
        for function, lines in of.items()
    }


def _groups(found: pd.DataFrame, event: int, end: int) -> pd.DataFrame:
    """The groups of blocks by kind, place and module.

    Columns: alive and blocks (bytes and number after an event), place, caller (if all blocks of the
    group have the same), allocs, size (the mean), most (bytes alive at once).
    """
    alive = (found["begin"] <= event) & (found["end"] > event)
    keys = ["kind", "at", "module"]
    sized = found.assign(alive=found["bytes"].where(alive, 0), blocks=alive)
    groups = sized.groupby(keys).agg(
        alive=("alive", "sum"),
        blocks=("blocks", "sum"),
        place=("place", "first"),
        caller=("caller", lambda callers: callers.iloc[0] if callers.nunique() == 1 else ""),
        allocs=("bytes", "size"),
        size=("bytes", "mean"),
    )
    names = found[keys]
    changes = pd.concat(
        [
            names.assign(when=found["begin"], size=found["bytes"]),
            names.assign(when=found["end"], size=-found["bytes"]),
        ]
    ).sort_values("when", kind="stable")
    changes = changes[changes["when"] < end]
    changes["load"] = changes.groupby(keys)["size"].cumsum()
    return groups.assign(most=changes.groupby(keys)["load"].max())


def _how(row: Mapping[str, Any]) -> str:
    """In what a group of blocks differs."""
    if not row["allocs_old"] or not row["allocs_new"]:
        return "gone" if row["allocs_old"] else "new"
    larger = row["size_new"] > row["size_old"]
    if row["size_old"] != row["size_new"] and larger == (row["alive_new"] > row["alive_old"]):
        return "larger" if larger else "smaller"
    if row["most_old"] == row["most_new"]:
        return "at another moment"
    grows = row["most_new"] > row["most_old"]
    if row["allocs_old"] == row["allocs_new"]:
        return "freed later" if grows else "freed earlier"
    return "more blocks" if grows else "fewer blocks"


def _first_change(old: Trace, new: Trace) -> FirstChange | None:
    """The first request that differs in what it does: its size, or the block that it frees."""
    if old is new:
        return None
    events, requests = zip(*(_requests(trace) for trace in (old, new)), strict=True)
    shorter = min(map(len, requests))
    same = np.all(requests[0][:shorter] == requests[1][:shorter], axis=1)
    if same.all() and len(requests[0]) == len(requests[1]):
        return None
    first = int(np.argmin(same)) if not same.all() else shorter
    at = [int(of[first]) if first < len(of) else None for of in events]
    marks = np.flatnonzero((old.op == MARK) & (old.block == old.step_label))
    begun = len(old) if at[0] is None else at[0]
    words = [_words(trace, event) for trace, event in zip((old, new), at, strict=True)]
    return FirstChange((at[0], at[1]), int(np.searchsorted(marks, begun)), (words[0], words[1]))


def _requests(trace: Trace) -> tuple[Ints, Ints]:
    """The allocs and frees: their events, and of each whether it frees, and the size or block."""
    _, ends = spans(trace.op, trace.block)
    what = trace.size.astype(np.int64)
    freed = ends < len(trace)
    what[ends[freed]] = np.flatnonzero(freed)
    events = np.flatnonzero(trace.op <= FREE)
    return events, np.stack([trace.op[events].astype(np.int64), what[events]], axis=1)


def _words(trace: Trace, event: int | None) -> str:
    if event is None:
        return "has no more requests"
    frees = trace.op[event] == FREE
    alloc = event
    if frees:
        same = trace.block[:event] == trace.block[event]
        alloc = int(np.flatnonzero(same & (trace.op[:event] == ALLOC))[-1])
    size = units.size(int(trace.size[alloc]))
    place = one_line(places_of(trace, np.array([alloc]))[0])
    return f"{'frees' if frees else 'requests'} {size}{f' ({place})' if place else ''}"


def _agreement(old: Trace, new: Trace) -> EqualEvents | None:
    """How far the requests agree in order; sizes are rounded if only one trace has them rounded."""
    if old is new or len(old) * len(new) > _MOST_PAIRS:
        return None
    rounded = {trace.provenance.extra.get("sizes") == "allocated" for trace in (old, new)}
    return agreement(old, new, _ROUNDED if len(rounded) > 1 else 1)
