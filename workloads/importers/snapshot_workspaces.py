# SPDX-License-Identifier: Apache-2.0
"""Marks the allocs of a snapshot that are modelled workspaces of a null GPU.

The null GPU adds them to PyTorch's snapshots, under the key "allocbench_workspaces".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import AddressedEvents
from allocbench.workloads.importers.module_names import changed
from allocbench.workloads.modelled import marked
from allocbench.workloads.vocabulary import MAX_SIZE, TraceError

_KEY = "allocbench_workspaces"
_KINDS = (int, int, int, int, str)
_CLOCKS_DIFFER = 1_000_000  # ns, at most
_MUCH = 20  # times as far away: then the clocks are wrong rather than the order
_LONGEST = 200  # characters of a rule


def workspaces_of(data: Any, device: int) -> list[tuple[int, int, int, str]]:
    """Time in ns, address (0: unknown), bytes and rule of each workspace on a device."""
    stored = data.get(_KEY, []) if isinstance(data, dict) else []
    if not isinstance(stored, list) or not all(map(_is_use, stored)):
        raise TraceError(f"its '{_KEY}' is not a list of workspaces")
    return [use[1:] for use in stored if use[0] == device]


def _is_use(use: Any) -> bool:
    return isinstance(use, tuple) and tuple(map(type, use)) == _KINDS


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
        text = changed(events.labels[events.label[event]], partial(marked, rule=rule))
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
