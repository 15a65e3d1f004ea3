# SPDX-License-Identifier: Apache-2.0
"""Where the events of a recording contradict each other because one of them is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import AddressedEvents, Blocks
from allocbench.workloads.recordings import Gaps
from allocbench.workloads.sorting import stable_order

Range = tuple[int, int]
"""The first address, and the one after the last."""


def gaps_of(
    events: AddressedEvents,
    allocs_before: NDArray[np.int64],
    live: Blocks | None = None,
    known: Sequence[Range] = (),
) -> Gaps:
    """The gaps in n events.

    allocs_before: int64 (n + 1,), as in `Traced`. live: the blocks that lived at the end, all of
    them in the ranges of `known`.
    """
    is_event = ~events.is_alloc | (events.size > 0)
    order = np.flatnonzero(is_event)
    order = order[stable_order(events.address[order])]
    address, is_alloc = events.address[order], events.is_alloc[order]
    same = address[1:] == address[:-1]
    two_allocs = np.flatnonzero(same & is_alloc[1:] & is_alloc[:-1]) + 1
    two_frees = same & ~is_alloc[1:] & ~is_alloc[:-1] & (events.size[order[1:]] > 0)
    two_frees = np.flatnonzero(two_frees) + 1
    last = np.flatnonzero(np.append(~same, True)[: len(order)])
    last = last[_inside(address[last], known)]
    lives = np.isin(address[last], live.address) if live else np.zeros(len(last), np.bool_)
    not_freed, not_allocated = last[is_alloc[last] & ~lives], last[~is_alloc[last] & lives]

    begun = np.concatenate(
        [
            allocs_before[order[two_allocs - 1]],
            np.full(len(two_frees), -1),
            allocs_before[order[not_freed]],
            np.full(len(not_allocated), -1),
        ]
    )
    shown = np.concatenate(
        [
            allocs_before[order[two_allocs]],
            allocs_before[order[two_frees]],
            np.full(len(not_freed) + len(not_allocated), allocs_before[-1]),
        ]
    )
    position = np.concatenate([two_allocs, two_frees, not_freed, not_allocated])
    in_order = np.lexsort((order[position], shown))
    return Gaps(begun[in_order], shown[in_order], address[position][in_order])


def _inside(address: NDArray[np.uint64], ranges: Sequence[Range]) -> NDArray[np.bool_]:
    """Which addresses lie in one of some ranges that do not overlap."""
    begin, end = np.array(sorted(ranges), np.uint64).reshape(-1, 2).T
    index = np.searchsorted(begin, address, side="right").astype(np.int64) - 1
    inside = index >= 0
    inside[inside] = address[inside] < end[index[inside]]
    return inside
