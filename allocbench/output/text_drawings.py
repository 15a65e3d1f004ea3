# SPDX-License-Identifier: Apache-2.0
"""The address space drawn with letters: segments as bars, darker where more is allocated."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.allocators import Segment
from allocbench.base import units

FREE, PARTLY, FULL, PIN = "·", "▒", "█", "X"
MARGIN = 31
"""The most letters of a line besides its bar."""
LEGEND = f"{FULL} allocated, {PARTLY} partly, {FREE} free, {PIN} with a block in the way"


def picture(
    segments: Sequence[Segment],
    pins: Collection[int],
    *,
    width: int = 64,
    most: int = 12,
) -> list[str]:
    """Lines of text: each of the `most` largest segments by address, and what is left out.

    pins: addresses of blocks to be marked. A bar is as long as its segment is large, at most
    `width` letters.
    """
    if not segments:
        return ["nothing is held from the device"]
    pinned = [
        segment for segment in segments if any(block.address in pins for block in segment.blocks)
    ]
    others = [segment for segment in segments if segment not in pinned]
    by_size = sorted(pinned, key=_size, reverse=True) + sorted(others, key=_size, reverse=True)
    shown = sorted(by_size[:most], key=lambda segment: segment.address)
    largest = max(map(_size, shown))
    names = [f"{segment.address:#x}" for segment in shown]
    margin = max(map(len, names))
    lines = []
    for segment, name in zip(shown, names, strict=True):
        bar = _bar(segment, pins, max(1, round(width * segment.size / largest)))
        lines.append(f"{name:>{margin}} {units.size(segment.size):>9} |{bar}|")
    if rest := by_size[most:]:
        held = sum(map(_size, rest))
        free = sum(b.size for segment in rest for b in segment.blocks if not b.allocated)
        lines.append(f"and {len(rest):,} more of {units.size(held)}, {units.size(free)} of it free")
    return lines


def _size(segment: Segment) -> int:
    return segment.size


def _bar(segment: Segment, pins: Collection[int], width: int) -> str:
    held, marked = [0] * width, set[int]()  # bytes of each letter, times the width
    for block in segment.blocks:
        if not block.allocated:
            continue
        begin = (block.address - segment.address) * width
        end = begin + block.size * width
        for n in range(begin // segment.size, -(-end // segment.size)):
            held[n] += min(end, (n + 1) * segment.size) - max(begin, n * segment.size)
            if block.address in pins:
                marked.add(n)
    return "".join(
        PIN if n in marked else FULL if part > 0.999 * segment.size else PARTLY if part else FREE
        for n, part in enumerate(held)
    )


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
