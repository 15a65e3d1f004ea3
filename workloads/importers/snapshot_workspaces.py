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
from allocbench.workloads.vocabulary import TraceError

_KEY = "allocbench_workspaces"
_KINDS = (int, int, int, int, str)
_CLOCKS_DIFFER = 1_000_000  # ns, at most
_MUCH = 20  # times as far away: then the clocks are wrong rather than the order


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
        place = bisect_right(candidates, time, key=lambda event: int(times[event]))
        before = next(
            (candidate for candidate in reversed(candidates[:place]) if candidate not in taken),
            None,
        )
        after = next(
            (candidate for candidate in candidates[place:] if candidate not in taken), None
        )
        right, wrong = (before, after) if address else (after, before)
        chosen = _chosen(right, wrong, lambda event: abs(int(times[event]) - time))  # noqa: B023
        if chosen is not None:
            taken.add(chosen)
            yield chosen, rule


def _chosen(right: int | None, wrong: int | None, far: Callable[[int], int]) -> int | None:
    """The better of two events, one on the right side of a time and one on the wrong side."""
    if wrong is None or far(wrong) > _CLOCKS_DIFFER:
        return right
    return wrong if right is None or far(right) > _MUCH * far(wrong) else right
