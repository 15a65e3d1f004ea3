# SPDX-License-Identifier: Apache-2.0
"""How many blocks are at the same address in each step, as a captured graph needs its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads import ALLOC, MARK, Trace

_FIRST = 3
"""The first step that is compared with the step before it: the first step warms up."""


class Addresses:
    """Collects the placements of a replay: a callable for `allocators.replay`.

    A place is the segment, counted in the order in which segments were obtained, and the offset.
    """

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []

    def __call__(self, placements: dict[str, NDArray[Any]]) -> None:
        """Add a batch, with the columns segment and offset."""
        self._parts.append(np.stack([placements["segment"], placements["offset"]]))

    @property
    def places(self) -> NDArray[np.int64]:
        """int64 (2, m): segment and offset of each alloc in order, -1 for those that failed."""
        return np.concatenate([np.empty((2, 0), np.int64), *self._parts], axis=1)


def stability(trace: Trace, places: NDArray[np.int64]) -> dict[str, float | None]:
    """The shares of blocks and of bytes at a stable address, as the columns of results define them.

    places: int64 (2, m), as `Addresses` collects them.
    """
    nothing = dict.fromkeys(("stable_address_share", "stable_address_bytes_share"))
    allocs = np.flatnonzero(trace.op == ALLOC)
    begins = (trace.op == MARK) & (trace.block == trace.step_label)
    step, size = np.cumsum(begins)[allocs], trace.size[allocs]
    judged = step >= _FIRST
    if not judged.any():
        return nothing
    # The j-th alloc of each size in each step.
    order = np.lexsort((np.arange(len(allocs)), step, size))
    begun = np.append(True, (np.diff(size[order]) != 0) | (np.diff(step[order]) != 0))
    number = np.arange(len(order)) - np.maximum.accumulate(
        np.where(begun, np.arange(len(order)), 0)
    )
    count = np.empty(len(order), np.int64)
    count[order] = number
    # The same alloc of consecutive steps side by side.
    order = np.lexsort((step, count, size))
    here, before = order[1:], order[:-1]
    stable = np.zeros(len(allocs), np.bool_)
    stable[here] = (
        (size[here] == size[before])
        & (count[here] == count[before])
        & (step[here] == step[before] + 1)
        & (places[:, here] == places[:, before]).all(axis=0)
        & (places[0, here] >= 0)
    )
    weight = size.astype(np.float64)
    return {
        "stable_address_share": float(np.mean(stable[judged])),
        "stable_address_bytes_share": float(weight[stable & judged].sum() / weight[judged].sum()),
    }
