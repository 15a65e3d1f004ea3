# SPDX-License-Identifier: Apache-2.0
"""How many blocks are at the same address in each step, as a captured graph needs its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.sorting import stable_order

_FIRST = 3
"""The first step that is compared with the step before it: the first step warms up."""
_COLUMNS = ("step", "requested", "segment", "offset")
_AT_ONCE = 1 << 20  # allocs that are collected before they are compared, to limit the memory needed


class Stability:
    """Compares the placements of each step with the step before: a callable for a replay.

    A place is the segment, counted in the order in which segments were obtained, and the offset.
    Keeps at most the placements of two consecutive steps, or some million.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._parts = [np.empty((len(_COLUMNS), 0), np.int64)]  # in order, from step _FIRST - 1 on
        self._collected = 0
        self._at_once = self._most = at_once
        self._begin = _FIRST  # the first step that was not compared yet
        self._allocs = self._stable_allocs = self._bytes = self._stable_bytes = 0

    def __call__(self, placements: Mapping[str, NDArray[Any]]) -> None:
        """Add a batch, with the columns step, requested, segment and offset, in order."""
        step = placements["step"]
        first = int(np.searchsorted(step, _FIRST - 1))
        if first == len(step):
            return
        columns = [placements[name][first:].astype(np.int64) for name in _COLUMNS]
        self._parts.append(np.stack(columns))
        self._collected += len(step) - first
        if self._collected > self._most:
            self._compare(int(step[-1]))

    def shares(self) -> dict[str, float | None]:
        """The shares of blocks and of bytes at a stable address, as the columns of results.

        Call it after the last batch.
        """
        last = self._parts[-1][0]
        if len(last):
            self._compare(int(last[-1]) + 1)
        some = self._allocs > 0
        return {
            "stable_address_share": self._stable_allocs / self._allocs if some else None,
            "stable_address_bytes_share": self._stable_bytes / self._bytes if some else None,
        }

    def _compare(self, end: int) -> None:
        """Compare the steps before `end`, which are complete, and keep the last of them."""
        allocs = np.concatenate(self._parts, axis=1)
        step, size = allocs[0], allocs[1]
        begin, kept, done = np.searchsorted(step, (self._begin, end - 1, end)).tolist()
        if begin < done:
            stable = _stable(allocs[:, :done])[begin:]
            judged = size[begin:done]
            self._allocs += len(judged)
            self._bytes += int(judged.sum())
            self._stable_allocs += int(np.count_nonzero(stable))
            self._stable_bytes += int(judged[stable].sum())
            self._begin = end
        self._parts = [allocs[:, kept:].copy()]
        self._collected = len(step) - kept
        self._most = max(self._at_once, 2 * self._collected)


def _stable(allocs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool (m,): which of the allocs are at the place of their counterpart in the step before."""
    step, size, segment, offset = allocs
    # In the order of size, step, and number within the step, since the allocs are in order already.
    order = stable_order(size.astype(np.uint64))
    step, size = step[order], size[order]
    begins = np.flatnonzero(np.append(True, (np.diff(size) != 0) | (np.diff(step) != 0)))
    lengths = np.diff(np.append(begins, len(order)))
    # A group has the allocs of one size in one step; the one before it may be that of last step.
    follows = np.append(False, (np.diff(size[begins]) == 0) & (np.diff(step[begins]) == 1))
    before = np.append(0, begins[:-1])
    length_before = np.where(follows, np.append(0, lengths[:-1]), 0)
    number = np.arange(len(order)) - np.repeat(begins, lengths)
    compared = np.flatnonzero(number < np.repeat(length_before, lengths))
    here = order[compared]
    last = order[np.repeat(before, lengths)[compared] + number[compared]]
    stable = np.zeros(len(order), np.bool_)
    stable[here] = (
        (segment[here] == segment[last]) & (offset[here] == offset[last]) & (segment[here] >= 0)
    )
    return stable
