# SPDX-License-Identifier: Apache-2.0
"""A trace: a program's requests to its allocator, event by event, as arrays of equal length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.base.text import encodable
from allocbench.base.trace import EventArrays, Layout
from allocbench.workloads._native import BlockNumbers
from allocbench.workloads.coverage import WHOLE, Coverage
from allocbench.workloads.sorting import stable_order
from allocbench.workloads.vocabulary import ALLOC as ALLOC
from allocbench.workloads.vocabulary import FREE as FREE
from allocbench.workloads.vocabulary import MARK as MARK
from allocbench.workloads.vocabulary import MAX_SIZE as MAX_SIZE
from allocbench.workloads.vocabulary import MOST_POOLS, POOL_CREATE, POOL_EVENTS, POOL_RELEASE
from allocbench.workloads.vocabulary import TRIM as TRIM
from allocbench.workloads.vocabulary import PrivatePool as PrivatePool
from allocbench.workloads.vocabulary import Provenance as Provenance
from allocbench.workloads.vocabulary import TraceError as TraceError

COLUMNS = {"op": "uint8", "block": "uint32", "size": "uint64", "stream": "uint16"}
OPTIONAL_COLUMNS = {
    "time_ns": "uint64",
    "label": "uint32",
    "module": "uint32",
    "kind": "uint32",
    "line": "uint32",
    "stack": "uint32",
    "pool": "uint16",
}
NAMED = ("label", "module", "kind", "line", "stack")  # columns of indices into the labels

_CHUNK = 1 << 16  # events checked at a time, to limit the memory needed


@dataclass(frozen=True)
class Broken:
    """A broken rule and the event that breaks it (None: the trace as a whole)."""

    rule: str
    event: int | None = None


@dataclass(frozen=True, eq=False)
class Trace(EventArrays):
    """Events in order, one per element of each array; n = `len(trace)`.

    The arrays of `EventArrays`. A block's id is below the number of allocs, and may be reused after
    its free.

    labels: the names that marks and `label` refer to. A mark named "step" begins a step.
    time_ns: uint64 (n,) or None, nanoseconds since the recording began.
    module: uint32 (n,) or None, index into `labels`: the path of the module of the model that each
        alloc belongs to, "" where that is not known.
    kind: uint32 (n,) or None, index into `labels`: what each alloc holds, as its program said:
        "parameters", "gradients", "optimizer state", "buffers and parameters without gradients",
        "backward pass" and "optimizer's step" for other allocs of these passes, or "".
    line: uint32 (n,) or None, index into `labels`: the line of the user's program that each alloc
        comes from, such as "train.py:68 forward", or "".
    stack: uint32 (n,) or None, index into `labels`: the calls of the program that lead to each
        alloc, outermost first, with semicolons between them, as in folded stacks of flame graphs:
        "train.py:80 <module>;train.py:68 forward", or "".
    layout: what the recorded allocator held before the first event, or None where that is not
        known. An allocator that can take a layout over begins with it and does not serve the allocs
        of its blocks; any other allocator serves them first.
    pools: the private pools 1, 2, and so on.
    coverage: which part of the program the events are.
    """

    labels: tuple[str, ...] = ()
    time_ns: NDArray[np.uint64] | None = None
    module: NDArray[np.uint32] | None = None
    kind: NDArray[np.uint32] | None = None
    line: NDArray[np.uint32] | None = None
    stack: NDArray[np.uint32] | None = None
    provenance: Provenance = Provenance()  # noqa: RUF009
    layout: Layout | None = None
    pools: tuple[PrivatePool, ...] = ()
    coverage: Coverage = WHOLE

    def __post_init__(self) -> None:
        """Replace what is no text in labels: a file may name anything."""
        try:
            "".join(self.labels).encode()
        except UnicodeEncodeError:
            object.__setattr__(self, "labels", tuple(map(encodable, self.labels)))

    def __len__(self) -> int:
        return len(self.op)

    def parts(self, *, labels: bool = False) -> Iterator[EventArrays]:
        """The trace as one part, with labels in any case; nothing if it is empty."""
        if len(self):
            yield self

    @property
    def name(self) -> str:
        """The provenance's name."""
        return self.provenance.name

    @property
    def blocks(self) -> int:
        """Number of block ids: one more than the largest id."""
        return int(self.block.max(where=self.op <= FREE, initial=0)) + 1 if self.allocs else 0

    @property
    def allocs(self) -> int:
        """Number of allocs."""
        return int(np.count_nonzero(self.op == ALLOC))

    @property
    def step_label(self) -> int:
        """Index of the label "step", or -1 without one."""
        return step_label_in(self.labels)

    def pool_of(self, event: int) -> int:
        """The private pool of an event, 0 for none."""
        return 0 if self.pool is None else int(self.pool[event])

    def without_pools(self) -> Trace:
        """The trace as it were if no private pool existed."""
        of_a_pool = (self.op >= POOL_CREATE) | ((self.op == TRIM) & (self.pool != 0))
        kept = ~of_a_pool
        columns = {name: column[kept] for name, column in self.columns().items()}
        return replace(self, **columns | {"pool": None, "pools": ()})

    def pool_events(self) -> Iterator[tuple[int, str, int]]:
        """The events of private pools: the event, its name in POOL_EVENTS, and the pool."""
        names = {op: name for name, op in POOL_EVENTS.items()}
        for event in np.flatnonzero(self.op >= POOL_CREATE).tolist():
            yield event, names[int(self.op[event])], self.pool_of(event)

    @property
    def requested(self) -> int:
        """Sum of the requested bytes of all allocs."""
        total = 0  # it may exceed 64 bits
        for start in range(0, len(self), _CHUNK):
            size = self.size[start : start + _CHUNK]
            high, low = size >> np.uint64(32), size & np.uint64(2**32 - 1)
            total += (int(high.sum()) << 32) + int(low.sum())
        return total

    @property
    def steps(self) -> int:
        """Number of marks that begin a step."""
        return int(np.count_nonzero((self.op == MARK) & (self.block == self.step_label)))

    @property
    def load(self) -> NDArray[Any]:
        """(n,) live requested bytes after each event. The trace must be valid.

        int64, or Python integers (object) if the sums might exceed int64.
        """
        allocs, ends = spans(self.op, self.block)
        size = self.size[allocs].astype(np.int64)
        change = np.zeros(len(self) + 1, np.int64)
        change[allocs] = size
        change[ends] = -size  # blocks that are never freed end past the last event
        fits = size.sum(dtype=np.float64) < MAX_SIZE
        return np.cumsum(change[:-1] if fits else change[:-1].astype(object))

    @cached_property
    def max_load(self) -> int:
        """Largest sum of live requested bytes over time. The trace must be valid."""
        return int(self.load.max(initial=0))

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, without the optional ones that are None."""
        arrays = {name: getattr(self, name) for name in (*COLUMNS, *OPTIONAL_COLUMNS)}
        return {name: array for name, array in arrays.items() if array is not None}

    def named(self, change: Callable[[NDArray[np.uint32]], NDArray[np.uint32]]) -> dict[str, Any]:
        """The columns that index `labels` and are not None, by name, each one changed."""
        columns = {name: getattr(self, name) for name in NAMED}
        return {name: change(column) for name, column in columns.items() if column is not None}

    def relabeled(self, names: Mapping[str, str]) -> Trace:
        """The same trace with labels renamed, equal names merged, and unused labels left out.

        names: old name -> new name; other labels keep theirs. The trace must be valid.
        """
        is_mark = self.op == MARK
        used = np.zeros(len(self.labels), np.bool_)
        used[self.block[is_mark]] = True
        for column in self.named(lambda column: column).values():
            used[column] = True
        places, new = dict[str, int](), np.zeros(len(self.labels), np.uint32)
        for old in np.flatnonzero(used).tolist():
            name = names.get(self.labels[old], self.labels[old])
            new[old] = places.setdefault(name, len(places))
        block = self.block.copy()
        block[is_mark] = new[block[is_mark]]
        columns = self.named(lambda column: new[column])
        return replace(self, block=block, labels=tuple(places), **columns)

    def validate(self) -> None:
        """Raise TraceError for the first broken rule, with the event (from 0) and the rule.

        The arrays of a valid trace are read-only from then on.
        """
        if broken := self.first_broken():
            where = "" if broken.event is None else f"event {broken.event}: "
            raise TraceError(f"{where}{broken.rule}")
        for array in self.columns().values():
            array.flags.writeable = False

    def first_broken(self) -> Broken | None:
        """The rule broken by the earliest invalid event, or None for a valid trace."""
        for name, array in self.columns().items():
            dtype = (COLUMNS | OPTIONAL_COLUMNS)[name]
            if array.dtype != dtype:
                return Broken(f"column '{name}' is {array.dtype}, not {dtype}")
            if array.shape != (len(self),):
                return Broken(f"column '{name}' has shape {array.shape}, not ({len(self)},)")
        allocs, numbers = self.allocs, BlockNumbers()
        for start in range(0, len(self), _CHUNK):
            part = slice(start, start + _CHUNK)
            if broken := self.first_broken_in(part, allocs, numbers):
                return broken
        return self.broken_layout()

    def broken_layout(self) -> Broken | None:
        """The rule that the layout breaks, or None; the first events must be valid."""
        if self.layout is None:
            return None
        if rule := self.layout.first_broken():
            return Broken(rule)
        if np.any(self.layout.pool > len(self.pools)):
            return Broken("a segment of the layout belongs to an unknown private pool")
        count = len(self.layout.block_size)
        if count > len(self) or np.any(self.op[:count] != ALLOC):
            return Broken(f"the first {count} events are not the allocs of the layout's blocks")
        if np.any(self.size[:count] > self.layout.block_size):
            return Broken("a block of the layout is smaller than its request")
        return None

    def first_broken_in(self, part: slice, allocs: int, numbers: BlockNumbers) -> Broken | None:
        """The rule broken by the earliest invalid event of a part, whose arrays must be right.

        allocs: those of the whole trace. numbers: of the blocks that are live before the part; they
        are those after the part if it is valid.
        """
        if len(self.pools) > MOST_POOLS:
            return Broken(f"{len(self.pools)} private pools are more than {MOST_POOLS}")
        op, block, size = self.op[part], self.block[part], self.size[part]
        is_alloc, is_mark = op == ALLOC, op == MARK
        of_labels = f"is out of range: there are {len(self.labels)} labels"
        rules = [
            (op > POOL_RELEASE, "unknown op {op}"),
            (
                (op <= FREE) & (block >= allocs),
                f"block id {{block}} is out of range: there are {allocs} allocs",
            ),
            (is_mark & (block >= len(self.labels)), f"mark label {{block}} {of_labels}"),
            (is_alloc & (size == 0), "alloc of block {block} has size 0"),
            (size > MAX_SIZE, f"size {{size}} is above {MAX_SIZE} bytes"),
            (~is_alloc & (size != 0), "size {size} on an event that is not an alloc"),
        ]
        is_pool_event = op >= POOL_CREATE
        if self.pool is None:
            rules.append(
                (is_pool_event, "op {op} is an event of a private pool, but it names no pool")
            )
        else:
            out_of_range = (
                f"private pool is out of range: there are {len(self.pools)} private pools"
            )
            rules.append((self.pool[part] > len(self.pools), out_of_range))
            rules.append((is_pool_event & (self.pool[part] == 0), "op {op} without a private pool"))
        for name, column in self.named(lambda column: column[part]).items():
            rules.append((column >= len(self.labels), f"{name} {of_labels}"))
        broken = [(int(mask.argmax()), rule) for mask, rule in rules if mask.any()]
        row, rule = min(broken, key=itemgetter(0), default=(len(op), ""))

        _, in_turn = numbers.number(op[:row], block[:row])
        if in_turn < row:
            row = in_turn
            rule = (
                "alloc of block {block}, which is already live"
                if is_alloc[row]
                else "free of block {block}, which is not live"
            )
        if not rule:
            return None
        rule = rule.format(op=op[row], block=block[row], size=size[row])
        return Broken(rule, part.start + row)


def step_label_in(labels: Sequence[str]) -> int:
    """Index of the label "step", whose marks begin steps, or -1 without one."""
    return labels.index("step") if "step" in labels else -1


def spans(
    op: NDArray[np.uint8], block: NDArray[np.uint32]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The event of each alloc, in order, and the event of its free, or len(op) if there is none."""
    events = np.flatnonzero(op <= FREE)
    events = events[stable_order(block[events])]  # by block, in time order within each
    is_alloc = op[events] == ALLOC
    # The event after an alloc is its free if it has the same block, and otherwise another alloc.
    following = np.append(events[1:], len(op))
    freed = np.append(~is_alloc[1:], False)
    ends = np.full(len(op), len(op))
    ends[events] = np.where(freed, following, len(op))
    allocs = np.flatnonzero(op == ALLOC)
    return allocs, ends[allocs]
