# SPDX-License-Identifier: Apache-2.0
"""A text plot for a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def plot(x: NDArray[Any], y: NDArray[Any], *, width: int = 72, height: int = 8) -> list[str]:
    """Lines of text, top first, that show y (at least 0) over x (ascending); both of length n.

    Each column is as high as the largest y of its stretch of x, and of the y before it where
    its stretch is empty; the highest y fills the height.
    """
    column = (x - x[0]) * width // (x[-1] - x[0] + 1)
    begins = np.flatnonzero(np.diff(column, prepend=-1))
    highest = np.maximum.reduceat(y, begins).astype(np.float64)
    level = highest[np.searchsorted(column[begins], np.arange(width), side="right") - 1]
    eighths = np.ceil(level / max(1.0, level.max()) * height * 8).astype(int)
    return [
        "".join(_EIGHTHS[min(8, max(0, n - 8 * row))] for n in eighths)
        for row in reversed(range(height))
    ]
