# SPDX-License-Identifier: Apache-2.0
"""Marks the allocs of a snapshot that are modelled workspaces of a null GPU.

The null GPU adds them to PyTorch's snapshots, under the key "allocbench_workspaces".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import Events
from allocbench.workloads.modelled import marked
from allocbench.workloads.vocabulary import TraceError

_KEY = "allocbench_workspaces"
_KINDS = (int, int, int, int, str)


def workspaces_of(data: Any, device: int) -> list[tuple[int, int, int, str]]:
    """Time in ns, address (0: unknown), bytes and rule of each workspace on a device."""
    told = data.get(_KEY, []) if isinstance(data, dict) else []
    if not isinstance(told, list) or not all(map(_is_use, told)):
        raise TraceError(f"its '{_KEY}' is not a list of workspaces")
    return [use[1:] for use in told if use[0] == device]


def _is_use(use: Any) -> bool:
    return isinstance(use, tuple) and tuple(map(type, use)) == _KINDS


def labels_with(
    events: Events, uses: list[tuple[int, int, int, str]]
) -> tuple[NDArray[np.uint32], tuple[str, ...]]:
    """The labels of events with the marks of workspaces: `label` and `labels` of `Events`.

    A workspace whose address is known is the last alloc of its address and size before it was
    used; one whose size alone is known is the first alloc of that size after it was asked for.
    """
    label = events.label.copy()
    labels = {text: number for number, text in enumerate(events.labels)}
    for event, rule in _found(events, uses):
        text = marked(events.labels[events.label[event]], rule)
        label[event] = labels.setdefault(text, len(labels))
    return label, tuple(labels)


def _found(events: Events, uses: list[tuple[int, int, int, str]]) -> Iterator[tuple[int, str]]:
    """The event of each workspace, and its rule."""
    if events.time_ns is None or not uses:
        return
    sizes = {size for _, _, size, _ in uses}
    numbers = np.flatnonzero(events.is_alloc & np.isin(events.size, list(sizes)))
    places = defaultdict[tuple[int, int], list[int]](list)  # address (0: any) and size -> events
    for event in numbers.tolist():
        size = int(events.size[event])
        places[int(events.address[event]), size].append(event)
        places[0, size].append(event)
    times = events.time_ns
    taken = set[int]()
    for time, address, size, rule in sorted(uses):
        candidates = places.get((address, size), [])

        def when(event: int) -> int:
            return int(times[event])

        # Snapshots have times in microseconds, rounded down.
        if address:
            place = bisect_right(candidates, time, key=when) - 1
        else:
            place = bisect_left(candidates, time // 1000 * 1000, key=when)
            while place < len(candidates) and candidates[place] in taken:
                place += 1
        if 0 <= place < len(candidates):
            taken.add(candidates[place])
            yield candidates[place], rule
