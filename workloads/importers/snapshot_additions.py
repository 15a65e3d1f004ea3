# SPDX-License-Identifier: Apache-2.0
"""What allocbench adds to memory snapshots: workspaces, modules' tensors, events of private pools.

The null GPU adds the modelled workspaces. `allocbench record` adds the other two: the tensors of
each module by address (`module_hook.py`), and annotations of what PyTorch's own history lacks, when
a graph was captured into a pool, a MemPool was entered and left, or a pool was released.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import AddressedEvents, PoolUse
from allocbench.workloads.importers.labels import marks_of
from allocbench.workloads.importers.snapshot_start import NotedSegment
from allocbench.workloads.modelled_workspaces import marked
from allocbench.workloads.recording_hook import POOL_EVENT, POOL_SEGMENTS, UNKNOWN_POOL
from allocbench.workloads.trace import Trace, spans
from allocbench.workloads.vocabulary import MAX_SIZE, POOL_EVENTS, POOL_TRAITS, PrivatePool

_CLOCKS_DIFFER = 1_000_000  # ns, at most
_MUCH = 20  # times as far away: then the clocks are wrong rather than the order
_LONGEST = 200  # characters of a rule
_EVENT = re.compile(rf"{re.escape(POOL_EVENT)} (\w+) (\d{{1,18}}\.\d{{1,18}})((?: \w+)*)")
_SEGMENT = re.compile(r"[0-9a-f]{1,16}_[0-9a-f]{1,16}_[0-9a-f]{1,15}")
_UNKNOWN_POOL = ".".join(map(str, UNKNOWN_POOL))
Named: TypeAlias = tuple[int, str]
"""When an annotated range begins, in ns, and its name."""
Owner: TypeAlias = tuple[str, str]
"""The path of a module, and a kind."""
Tensors: TypeAlias = list[tuple[int, dict[str, Owner]]]
"""When in ns, and tensors by address, which is a text: nobody can choose its hash."""

# --- workspaces


def labels_with(
    events: AddressedEvents, uses: list[tuple[int, int, int, str]]
) -> tuple[NDArray[np.uint32], tuple[str, ...]]:
    """The labels of events with the marks of workspaces: `label` and `labels` of `AddressedEvents`.

    A workspace whose address is known is the last alloc at that address and of that size before it
    was used. If only its size is known, it is the first alloc of that size after the library asked
    for it. The two clocks can differ by some microseconds, so an alloc slightly too late or too
    early also counts.
    """
    label = events.label.copy()
    labels = {text: number for number, text in enumerate(events.labels)}
    for event, rule in _found(events, uses):
        text = marked(events.labels[events.label[event]], rule)
        label[event] = labels.setdefault(text, len(labels))
    return label, tuple(labels)


def _found(
    events: AddressedEvents, uses: list[tuple[int, int, int, str]]
) -> Iterator[tuple[int, str]]:
    """The event of each workspace, and its rule."""
    if events.time_ns is None or not uses:
        return
    sizes = np.array([size for _, _, size, _ in uses if 0 <= size <= MAX_SIZE], np.uint64)
    numbers = np.flatnonzero(events.is_alloc & np.isin(events.size, sizes))
    places = defaultdict[str, _Untaken](partial(_Untaken, set[int]()))
    for event in numbers.tolist():
        address, size = int(events.address[event]), int(events.size[event])
        places[_key(address, size)].events.append(event)
        places[_key(0, size)].events.append(event)
    times = events.time_ns
    for time, address, size, rule in sorted(uses):
        if (untaken := places.get(_key(address, size))) is None:
            continue
        place = bisect_right(untaken.events, time, key=lambda event: int(times[event]))
        before, after = untaken.before(place), untaken.after(place)
        right, wrong = (before, after) if address else (after, before)
        chosen = _chosen(right, wrong, lambda event: abs(int(times[event]) - time))  # noqa: B023
        if chosen is not None:
            untaken.taken.add(chosen)
            yield chosen, rule[:_LONGEST]


def _key(address: int, size: int) -> str:
    """A text, whose hash nobody can choose; address 0 stands for any."""
    return f"{address:x} {size:x}"


class _Untaken:
    """Events in order, some of which are taken; `taken` can be that of several lists.

    Each search skips the runs of taken events that earlier searches passed.
    """

    def __init__(self, taken: set[int]) -> None:
        self.taken = taken
        self.events: list[int] = []
        self._skipped: dict[int, dict[int, int]] = {-1: {}, 1: {}}  # place -> a place further on

    def before(self, place: int) -> int | None:
        """The last event before a place that is not taken."""
        return self._next(place - 1, -1)

    def after(self, place: int) -> int | None:
        """The first event from a place on that is not taken."""
        return self._next(place, 1)

    def _next(self, place: int, step: int) -> int | None:
        skipped, passed = self._skipped[step], list[int]()
        while 0 <= place < len(self.events) and self.events[place] in self.taken:
            passed.append(place)
            place = skipped.get(place, place + step)
        skipped.update(dict.fromkeys(passed, place))
        return self.events[place] if 0 <= place < len(self.events) else None


def _chosen(right: int | None, wrong: int | None, far: Callable[[int], int]) -> int | None:
    """The better of two events, one on the right side of a time and one on the wrong side."""
    if wrong is None or far(wrong) > _CLOCKS_DIFFER:
        return right
    return wrong if right is None or far(right) > _MUCH * far(wrong) else right


# --- modules


def with_modules(
    trace: Trace, address: NDArray[np.uint64], begun: int | None, stored: Any
) -> Trace:
    """A trace whose allocs have the module and the kind of the tensors that they hold.

    address: of each alloc. begun: the time of the trace's first event in ns, None if it has no
    times. stored: what the snapshot has at TENSORS, of any type. Without any module or kind, the
    trace has neither column.
    """
    tensors = _read(stored)
    if trace.label is None or not (tensors or trace.module is not None or trace.kind is not None):
        return replace(trace, module=None, kind=None)
    numbers = {label: number for number, label in enumerate(trace.labels)}
    module, kind = (
        np.zeros(len(trace), np.uint32) if column is None else column.copy()
        for column in (trace.module, trace.kind)
    )
    for allocs, names in _owned(trace, address, begun, tensors):
        module[allocs], kind[allocs] = (numbers.setdefault(name, len(numbers)) for name in names)
    return replace(trace, labels=tuple(numbers), module=module, kind=kind)


def _owned(
    trace: Trace, address: NDArray[np.uint64], begun: int | None, tensors: Tensors
) -> Iterable[tuple[NDArray[np.intp], Owner]]:
    """The events of the allocs of each module's tensors, with the module and the kind."""
    if trace.time_ns is None or begun is None or not tensors:
        return
    allocs, ends = spans(trace.op, trace.block)
    order = np.lexsort((allocs, address))  # blocks at one address live one after the other
    places, begins, last = address[order], allocs[order], ends[order]
    in_order = sorted(tensors, key=itemgetter(0))
    for _, run in groupby(in_order, key=lambda held: id(held[1])):
        times, (by_address, *_) = zip(*run, strict=True)
        since = np.maximum(0, np.array(times) - begun)
        events = np.searchsorted(trace.time_ns, since, side="right").tolist()
        names = [*by_address.values()]
        wanted = np.array([*map(int, by_address)], np.uint64)
        ranges = zip(
            np.searchsorted(places, wanted).tolist(),
            np.searchsorted(places, wanted, side="right").tolist(),
            strict=True,
        )
        found = []  # the first event of the run at which a block was alive, block, names
        for number, (low, high) in enumerate(ranges):
            earlier = int(np.searchsorted(begins[low:high], events[0]))
            for block in range(low + max(0, earlier - 1), high):
                if begins[block] >= events[-1]:
                    break
                event = events[bisect_right(events, begins[block])]
                if event <= last[block]:
                    found.append((event, order[block], number))
        for _, same in groupby(sorted(found), key=itemgetter(0)):
            blocks = defaultdict[Owner, list[int]](list)
            for _, block, number in same:
                blocks[names[number]].append(block)
            for owner, numbers in blocks.items():
                yield allocs[numbers], owner


def _read(stored: Any) -> Tensors:
    """The tensors stored in a snapshot; empty if they do not have the expected form."""
    lists: Tensors = []
    known = set[int]()  # a list that is stored once but used many times could be very long in all
    try:
        for when, tensors in stored or ():
            if not abs(when) <= MAX_SIZE:
                raise ValueError
            if tensors is None:
                lists.append((int(when), lists[-1][1]))
                continue
            by_address = dict(_one(*tensor) for tensor in tensors)
            if by_address and id(tensors) in known:
                raise ValueError
            known.add(id(tensors))
            lists.append((int(when), by_address))
    except (TypeError, ValueError, OverflowError, IndexError):
        return []
    return lists


def _one(address: int, path: str, kind: str) -> tuple[str, Owner]:
    if type(address) is not int or not 0 <= address <= MAX_SIZE:
        raise ValueError
    if type(path) is not str or type(kind) is not str:
        raise ValueError
    return str(address), (path, kind)


# --- private pools


def apart(annotations: Iterable[Named]) -> tuple[list[Named], list[Named]]:
    """The marks of the program's annotations, and the annotations of events of private pools."""
    named, of_pools = list[Named](), list[Named]()
    for annotation in annotations:
        (of_pools if annotation[1].startswith(f"{POOL_EVENT} ") else named).append(annotation)
    return marks_of(named), of_pools


def pool_uses(
    annotations: Sequence[Named], time_ns: NDArray[np.int64], number: Callable[[str], int]
) -> tuple[list[PoolUse], dict[int, PrivatePool]]:
    """The events of private pools in order, and what is known of the pools.

    time_ns: of the allocs and frees, in order except where the clock was set back. number: of the
    id of a pool. A capture that never ended, whose pool is unknown, is left out.
    """
    rising = np.maximum.accumulate(time_ns)
    uses: list[PoolUse] = []
    traits: dict[int, PrivatePool] = {}
    events = _events(annotations, POOL_EVENTS)
    captured_into = {
        name: pool for _, event, pool, names in events if event == "capture_end" for name in names
    }
    for when, event, pool, names in events:
        if pool == _UNKNOWN_POOL:
            captures = [captured_into[name] for name in names if name in captured_into]
            if not captures:
                continue
            pool = captures[0]
        before = int(np.searchsorted(rising, when))
        of = number(pool)
        uses.append(PoolUse(before, POOL_EVENTS[event], of))
        chosen = [name for name in names if name in POOL_TRAITS]
        if chosen or of not in traits:
            traits[of] = PrivatePool("", *(trait in chosen for trait in POOL_TRAITS))
    return uses, traits


def noted_segments(
    annotations: Sequence[Named], time_ns: NDArray[np.int64], number: Callable[[str], int]
) -> list[NotedSegment]:
    """The segments that pools had before they were released, in order; see `pool_uses`."""
    rising = np.maximum.accumulate(time_ns)
    found = list[NotedSegment]()
    for when, _, pool, texts in _events(annotations, (POOL_SEGMENTS,)):
        before = int(np.searchsorted(rising, when))
        for text in filter(_SEGMENT.fullmatch, texts):
            address, size, stream = (int(part, 16) for part in text.split("_"))
            if address + size <= MAX_SIZE:
                found.append(NotedSegment(before, number(pool), address, size, stream))
    return found


def _events(
    annotations: Sequence[Named], kinds: Container[str]
) -> list[tuple[int, str, str, list[str]]]:
    """When each event of some kinds was, its kind, its pool, and the texts that follow."""
    return [
        (when, match[1], match[2], match[3].split())
        for when, name in sorted(annotations, key=lambda annotation: annotation[0])
        if (match := _EVENT.fullmatch(name)) and match[1] in kinds
    ]
