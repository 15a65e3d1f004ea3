# SPDX-License-Identifier: Apache-2.0
"""The distribution of the latencies of calls, without keeping each of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Latencies:
    """How often each latency occurred. Nothing is rounded: the percentiles are those of all calls.

    Memory: in proportion to the distinct latencies, which are multiples of a tick of the timer.
    """

    def __init__(self) -> None:
        self._seconds = np.empty(0, np.float32)  # ascending
        self._counts = np.empty(0, np.int64)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, seconds: NDArray[np.float32]) -> None:
        """Count the latencies of further calls."""
        distinct, counts = np.unique(seconds, return_counts=True)
        both = np.concatenate((self._seconds, distinct))
        times = np.concatenate((self._counts, counts))
        self._seconds, place = np.unique(both, return_inverse=True)
        self._counts = np.zeros(len(self._seconds), np.int64)
        np.add.at(self._counts, place, times)

    def mean(self) -> float:
        """Seconds."""
        return float(self._seconds.astype(np.float64) @ self._counts) / len(self)

    def max(self) -> float:
        """Seconds."""
        return float(self._seconds[-1])

    def percentile(self, percent: float) -> float:
        """Seconds: between the two calls around it, interpolated linearly, as numpy does."""
        up_to = np.cumsum(self._counts)
        place = percent / 100 * (len(self) - 1)
        low = int(place)
        ranks = np.searchsorted(up_to, (low, min(low + 1, len(self) - 1)), side="right")
        below, above = self._seconds[ranks].tolist()
        return float(below + (above - below) * (place - low))
