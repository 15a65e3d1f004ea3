# SPDX-License-Identifier: Apache-2.0
"""The distribution of many numbers, without keeping each of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Distribution:
    """How often each number occurred. Nothing is rounded: percentiles are those of all numbers.

    values: the distinct numbers, ascending. counts: int64, how often each occurred. Memory: in
    proportion to the distinct numbers.
    """

    def __init__(self) -> None:
        self.values: NDArray[Any] = np.empty(0)
        self.counts = np.empty(0, np.int64)

    def __len__(self) -> int:
        return int(self.counts.sum())

    def add(self, numbers: NDArray[Any]) -> None:
        """Count further numbers, of the same type each time."""
        values, counts = np.unique(numbers, return_counts=True)
        if len(self.values):
            both = np.concatenate((self.values, values))
            times = np.concatenate((self.counts, counts))
            values, place = np.unique(both, return_inverse=True)
            counts = np.zeros(len(values), np.int64)
            np.add.at(counts, place, times)
        self.values, self.counts = values, counts

    def mean(self) -> float:
        """The arithmetic mean."""
        return float(self.values.astype(np.float64) @ self.counts) / len(self)

    def max(self) -> float:
        """The largest number."""
        return float(self.values[-1])

    def percentile(self, percent: float) -> float:
        """A percentile, interpolated linearly between two numbers as numpy does by default."""
        up_to = np.cumsum(self.counts)
        place = percent / 100 * (len(self) - 1)
        low = int(place)
        ranks = np.searchsorted(up_to, (low, min(low + 1, len(self) - 1)), side="right")
        below, above = self.values[ranks].tolist()
        return float(below + (above - below) * (place - low))
