# SPDX-License-Identifier: Apache-2.0
"""The rules of MLX's cache of Metal buffers, as the reports on it describe them.

A freed buffer stays in the cache. A request takes the smallest cached buffer of at least its size,
a multiple of the page (16 KiB), if that is smaller than twice the size and by less than two pages
larger. Nothing leaves the cache before its limit, 1.5 times the recommended working set.
"""

from __future__ import annotations

import bisect
from typing import Any

PAGE = 16 << 10


class MlxCache:
    """An allocator for `--allocators benchmarks/workshop/court/mlx.py:MlxCache`."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._free: list[tuple[int, int]] = []  # size, address
        self._size: dict[int, int] = {}

    def allocate(self, size: int, stream: int) -> int:
        """The address of a buffer, or 0."""
        size = -(-size // PAGE) * PAGE
        place = bisect.bisect_left(self._free, (size, 0))
        if place < len(self._free) and self._free[place][0] < min(2 * size, size + 2 * PAGE):
            return self._free.pop(place)[1]
        address = int(self._device.malloc(size))
        self._size[address] = size
        return address

    def free(self, address: int) -> None:
        """Put a buffer into the cache."""
        bisect.insort(self._free, (self._size[address], address))
