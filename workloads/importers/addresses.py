# SPDX-License-Identifier: Apache-2.0
"""Events that name blocks by address -> a trace, which names them by id.

An address serves many blocks one after the other. Recordings begin and end anywhere, so that
- a free of an address that was not allocated before ends a block that lived when the recording
  began: it is allocated first of all, with the size that the free tells;
- a free of an address that was freed already is left out;
- an alloc of an address that lives already ends the block that was there: its free is missing;
- a request for no bytes is none.
The last three are counted in the trace's provenance, under `extra`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import ALLOC, FREE, MARK, Provenance, Trace, TraceError

_MOST_STREAMS = 1 << 16


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks that lived at the end: one for each element of the arrays, which are of equal length.

    address: uint64. size: uint64, bytes. stream: int64, any number. label: uint32, index into the
    labels of the events.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    stream: NDArray[np.int64]
    label: NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Events:
    """Allocs and frees in order: one for each element of the arrays, which are of equal length.

    is_alloc: bool. address, size, stream, label: as those of `Blocks`; a free's size may be 0.
    time_ns: int64 or None, of any origin. labels: what `label` refers to; the first one is "".
    marks: which event (from 0) each mark comes before, and its name; in order.
    """

    is_alloc: NDArray[np.bool_]
    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    stream: NDArray[np.int64]
    label: NDArray[np.uint32]
    time_ns: NDArray[np.int64] | None = None
    labels: Sequence[str] = ("",)
    marks: Sequence[tuple[int, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.is_alloc)


def none() -> Blocks:
    """No blocks."""
    return Blocks(
        np.empty(0, np.uint64),
        np.empty(0, np.uint64),
        np.empty(0, np.int64),
        np.empty(0, np.uint32),
    )


def trace_of(events: Events, provenance: Provenance, live: Blocks | None = None) -> Trace:
    """The trace of n events and of the blocks known to have lived at the end.

    A block that lived at the end and has no event lived at the start too. What was live at the
    start is allocated first, in order of address. Raises TraceError for more than 65536 streams.
    """
    pairs = _Pairs(events)
    initial = _initial(events, pairs, live or none())
    count = len(initial.address)
    kept = ~pairs.left_out
    allocs = np.cumsum(events.is_alloc & kept) - 1 + count

    # What each event's block was begun by: an alloc, or the first free of one that lived before.
    begins = np.empty(len(events), np.int64)
    begins[events.is_alloc] = allocs[events.is_alloc]
    begins[pairs.from_start] = np.searchsorted(initial.address, events.address[pairs.from_start])
    block = begins[pairs.begin]
    ended = begins[pairs.begin[pairs.before[pairs.unfreed]]]

    # Everything in one order: the blocks from before, then marks, missing frees, and events.
    event = np.flatnonzero(kept)
    marked = np.array([at for at, _ in events.marks], np.int64)
    labels, mark = _labels(events)
    when = np.concatenate([np.full(count, -1), 3 * marked, 3 * pairs.unfreed + 1, 3 * event + 2])
    order = np.argsort(when, kind="stable")

    def merged(dtype: str, *parts: Any) -> Any:
        return np.concatenate([np.asarray(part).astype(dtype) for part in parts])[order]

    nothing, no_frees = np.zeros(len(marked)), np.zeros(len(pairs.unfreed))
    streams = merged(
        "int64", initial.stream, nothing, events.stream[pairs.unfreed], events.stream[event]
    )
    is_alloc = events.is_alloc[event]
    return Trace(
        op=merged(
            "uint8",
            np.full(count, ALLOC),
            np.full(len(marked), MARK),
            np.full(len(pairs.unfreed), FREE),
            np.where(is_alloc, ALLOC, FREE),
        ),
        block=merged("uint32", np.arange(count), mark, ended, block[event]),
        size=merged("uint64", initial.size, nothing, no_frees, events.size[event] * is_alloc),
        stream=_dense(streams),
        labels=labels,
        time_ns=_times(events, count, marked, pairs.unfreed, event, order),
        label=merged("uint32", initial.label, nothing, no_frees, events.label[event] * is_alloc)
        if len(events.labels) > 1
        else None,
        provenance=replace(
            provenance, live_at_start=count, extra={**provenance.extra, **pairs.counts()}
        ),
    )


def marks_before(
    time_ns: NDArray[np.int64], begun: Iterable[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Marks for `Events`: (when, name) of each -> (the event that it comes before, name).

    time_ns: of the events, in order but for steps back of the clock.
    """
    rising = np.maximum.accumulate(time_ns)
    in_order = sorted(begun, key=itemgetter(0))
    return [(int(np.searchsorted(rising, when)), name) for when, name in in_order]


class _Pairs:
    """Which events belong together: indices of events (from 0), and masks over them.

    begin: the event that began the block of each event. before: the event before it at its
    address. from_start: frees of blocks that lived at the start. left_out: what is no event.
    unfreed: allocs at an address where a block still lived.
    """

    def __init__(self, events: Events) -> None:
        n, is_alloc = len(events), events.is_alloc
        nothing = is_alloc & (events.size == 0)
        order = np.flatnonzero(~nothing)
        order = order[np.argsort(events.address[order], kind="stable")]
        first = np.append(True, events.address[order[1:]] != events.address[order[:-1]])[
            : len(order)
        ]
        after_alloc = np.append(False, is_alloc[order[:-1]])[: len(order)] & ~first

        from_start = first & ~is_alloc[order] & (events.size[order] > 0)
        starts = is_alloc[order] | from_start
        stray = ~starts & ~after_alloc
        begin = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
        self.begin = np.zeros(n, np.int64)
        self.begin[order] = order[begin] if len(order) else 0
        self.before = np.zeros(n, np.int64)
        self.before[order[1:]] = order[:-1]
        self.from_start = np.zeros(n, np.bool_)
        self.from_start[order[from_start]] = True
        self.unfreed = np.sort(order[is_alloc[order] & after_alloc])
        self.left_out = nothing
        self.left_out[order[stray]] = True
        self._nothing, self._stray = int((is_alloc & (events.size == 0)).sum()), int(stray.sum())
        last = np.append(first[1:], True)[: len(order)]
        self.addresses = events.address[order[last]]
        """All of them, in order."""

    def counts(self) -> dict[str, int]:
        found = {
            "requests_for_no_bytes": self._nothing,
            "frees_left_out": self._stray,
            "frees_missing": len(self.unfreed),
        }
        return {name: count for name, count in found.items() if count}


def _initial(events: Events, pairs: _Pairs, live: Blocks) -> Blocks:
    """The blocks that lived at the start, in order of address."""
    _, once = np.unique(live.address, return_index=True)
    alone = once[~np.isin(live.address[once], pairs.addresses) & (live.size[once] > 0)]
    freed = pairs.from_start
    address = np.concatenate([live.address[alone], events.address[freed]])
    order = np.argsort(address)
    return Blocks(
        address[order],
        np.concatenate([live.size[alone], events.size[freed]])[order],
        np.concatenate([live.stream[alone], events.stream[freed]])[order],
        np.concatenate([live.label[alone], np.zeros(np.count_nonzero(freed), np.uint32)])[order],
    )


def _labels(events: Events) -> tuple[tuple[str, ...], list[int]]:
    """All labels, those of the marks too, and the label of each mark."""
    labels = {label: n for n, label in enumerate(events.labels)} if len(events.labels) > 1 else {}
    marks = [labels.setdefault(name, len(labels)) for _, name in events.marks]
    return tuple(labels), marks


def _dense(streams: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Streams numbered in order of appearance, the default stream 0 being 0."""
    found, first, index = np.unique(np.append(0, streams), return_index=True, return_inverse=True)
    if len(found) > _MOST_STREAMS:
        raise TraceError(f"has {len(found)} streams; a trace holds {_MOST_STREAMS}")
    number = np.empty(len(found), np.uint16)
    number[np.argsort(first, kind="stable")] = np.arange(len(found))
    return number[index[1:]]


def _times(
    events: Events,
    initial: int,
    marked: NDArray[np.int64],
    unfreed: NDArray[np.int64],
    event: NDArray[np.int64],
    order: NDArray[np.int64],
) -> NDArray[np.uint64] | None:
    """Times since the earliest event; a mark has that of the event after it."""
    if events.time_ns is None:
        return None
    if not len(events):
        return np.zeros(len(order), np.uint64)
    time = events.time_ns - events.time_ns.min()
    at_mark = time[np.minimum(marked, len(time) - 1)]
    parts = [np.zeros(initial, np.int64), at_mark, time[unfreed], time[event]]
    return np.concatenate(parts)[order].astype(np.uint64)
