# SPDX-License-Identifier: Apache-2.0
"""Traces that stay in their file: each reading gives the events part by part.

Memory is needed for one part and for the live blocks, whatever the length of the trace.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench.base.trace import EventArrays, Layout
from allocbench.workloads._native import BlockNumbers
from allocbench.workloads.coverage import WHOLE, Coverage
from allocbench.workloads.errors import errors_naming
from allocbench.workloads.trace import (
    COLUMNS,
    Broken,
    PrivatePool,
    Provenance,
    Trace,
    TraceError,
    step_label_in,
)
from allocbench.workloads.trace_features import Features, features_of_parts
from allocbench.workloads.vocabulary import MAX_SIZE

PART_EVENTS = 1 << 19
"""Events of a part, about."""
_REPLAYED = (*COLUMNS, "pool")

Arrays: TypeAlias = dict[str, Any]
"""Arrays of equal length by name."""


@dataclass(frozen=True)
class Source:
    """What a format says about a file that can be read in parts.

    events, allocs: of the whole trace. columns: the names of the arrays in the file. head: the
    fields of the `Trace` that are no arrays. read: called with some of `columns`, gives these
    arrays for some of the events at a time, in order; each call begins with the first event.
    """

    events: int
    allocs: int
    columns: tuple[str, ...]
    head: Mapping[str, Any]
    read: Callable[[tuple[str, ...]], Iterator[Arrays]]


@dataclass(frozen=True, eq=False)
class NumberedEvents(EventArrays):
    """Events of a file, whose blocks have numbers below the most that are alive at once.

    block: a number is used again after its block's free. names: uint32 (n,), `block` as it is in
    the trace.
    """

    names: NDArray[np.uint32]

    @property
    def id(self) -> NDArray[np.uint32]:
        """As in the trace."""
        return self.names


class StreamedTrace:
    """A valid trace in a file, which is read again whenever its events are needed."""

    def __init__(self, source: Source, path: Path | str, close: Callable[[], None]) -> None:
        """Read the file twice, to check every event and for the features.

        path: what errors name. close: called when this object is gone.

        Raises TraceError for the first broken rule, as `workloads.read` does.
        """
        self._source, self._path = source, path
        self._close = weakref.finalize(self, close)
        self.labels: tuple[str, ...] = source.head.get("labels", ())
        self.provenance: Provenance = source.head["provenance"]
        self.layout: Layout | None = source.head.get("layout")
        self.pools: tuple[PrivatePool, ...] = source.head.get("pools", ())
        self.coverage: Coverage = source.head.get("coverage", WHOLE)
        self.allocs = source.allocs
        self.requested = 0
        """Sum of the requested bytes of all allocs."""
        readings = iter((self._checked, self._numbered))
        with errors_naming(path):
            self.features: Features = features_of_parts(
                lambda: next(readings)(), self.step_label, len(self)
            )

    def __len__(self) -> int:
        return self._source.events

    @property
    def name(self) -> str:
        """The provenance's name."""
        return self.provenance.name

    @property
    def step_label(self) -> int:
        """Index of the label "step", or -1 without one."""
        return step_label_in(self.labels)

    def parts(self, *, labels: bool = False) -> Iterator[NumberedEvents]:
        """All events in order, from the beginning. The first part has the layout's blocks.

        labels: whether parts have the labels of their events, if the trace has labels.

        Raises TraceError if the file has changed so that it can no longer be read.
        """
        with errors_naming(self._path):
            yield from self._numbered(labels)

    def first_events(self, count: int) -> Trace:
        """The trace cut after its first events, at most those of the first part."""
        with errors_naming(self._path):
            return self._first_events(count)

    def _first_events(self, count: int) -> Trace:
        columns = next(self._read(self._source.columns))
        cut: dict[str, Any] = {name: array[:count] for name, array in columns.items()}
        return Trace(**cut, **self._source.head)

    def _numbered(self, labels: bool = False) -> Iterator[NumberedEvents]:
        wanted = (*_REPLAYED, "label") if labels else _REPLAYED
        numbers = BlockNumbers()
        first = 0
        for arrays in self._read(tuple(n for n in wanted if n in self._source.columns)):
            block, in_turn = numbers.number(arrays["op"], arrays["block"])
            if in_turn < len(block):
                raise TraceError(f"event {first + in_turn}: the file has changed")
            first += len(block)
            yield _part(arrays, block)

    def _read(self, names: tuple[str, ...]) -> Iterator[Arrays]:
        """The arrays of each part."""
        at_first = 0 if self.layout is None else len(self.layout.block_size)
        waiting: list[Arrays] = []
        for arrays in self._source.read(names):
            waiting.append(arrays)
            if sum(len(part["op"]) for part in waiting) >= at_first:
                yield _joined(waiting)
                waiting, at_first = [], 0
        if waiting:
            yield _joined(waiting)

    def _checked(self) -> Iterator[NumberedEvents]:
        checked, numbered = BlockNumbers(), BlockNumbers()
        first = 0
        for arrays in self._read(self._source.columns):
            trace = Trace(**arrays, **self._source.head)
            _refuse(trace.first_broken_in(slice(0, len(trace)), self.allocs, checked), first)
            first += len(trace)
            self.requested += trace.requested
            yield _part(arrays, numbered.number(trace.op, trace.block)[0])
        if self.layout is not None:
            _refuse(self._first_events(len(self.layout.block_size)).broken_layout())
        check_sum(self)


AnyTrace: TypeAlias = Trace | StreamedTrace


def check_sum(trace: AnyTrace) -> None:
    """Raise TraceError if the allocs add up to more bytes than the counters of a replay hold."""
    if trace.requested > MAX_SIZE:
        raise TraceError(f"its allocs add up to {trace.requested:,} bytes, more than {MAX_SIZE:,}")


def first_events(trace: AnyTrace, count: int) -> Trace:
    """A trace cut after its first events, at most the allocs of its layout."""
    if isinstance(trace, StreamedTrace):
        return trace.first_events(count)
    cut: dict[str, Any] = {name: array[:count] for name, array in trace.columns().items()}
    return replace(trace, **cut)


def _refuse(broken: Broken | None, first: int = 0) -> None:
    if broken is not None:
        raise TraceError(f"event {first + (broken.event or 0)}: {broken.rule}")


def _joined(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _part(arrays: Arrays, block: NDArray[np.uint32]) -> NumberedEvents:
    op, size, stream = arrays["op"], arrays["size"], arrays["stream"]
    pool, label = arrays.get("pool"), arrays.get("label")
    return NumberedEvents(op, block, size, stream, arrays["block"], pool=pool, label=label)
