# SPDX-License-Identifier: Apache-2.0
"""What an allocator held when a trace began: segments, and where the first blocks lie in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEGMENT_COLUMNS = {
    "address": "uint64",
    "size": "uint64",
    "stream": "uint16",
    "small": "bool",
    "reservation": "uint64",
    "rank": "uint32",
}
OPTIONAL_COLUMNS = {"pool": "uint16"}
BLOCK_COLUMNS = {"block_address": "uint64", "block_size": "uint64"}
_NAMES_IN_FILES = {"reservation": "space"}  # where they differ from those of the columns


@dataclass(frozen=True, eq=False)
class Layout:
    """Segments and the blocks allocated in them, each in order of address; the rest is free.

    s segments: address, size: uint64 (s,), bytes. stream: uint16 (s,). small: bool (s,), whether
    the segment belongs to the pool of small blocks. reservation: uint64 (s,), the address of the
    reservation that the segment is a mapped range of, or 0 if there is no reservation. rank: uint32
    (s,), the order in which the segments were obtained, as far as it is known. pool: uint16 (s,),
    the private pool, or 0.
    b blocks: block_address, block_size: uint64 (b,), bytes. The first b events of the trace
    allocate them.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    stream: NDArray[np.uint16]
    small: NDArray[np.bool_]
    reservation: NDArray[np.uint64]
    rank: NDArray[np.uint32]
    block_address: NDArray[np.uint64]
    block_size: NDArray[np.uint64]
    pool: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))

    def __post_init__(self) -> None:
        if not len(self.pool):
            object.__setattr__(self, "pool", np.zeros(len(self.address), np.uint16))

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return int(self.size.sum())

    @property
    def segment_of_block(self) -> NDArray[np.int64]:
        """int64 (b,), the segment that each block begins in, or -1."""
        return np.searchsorted(self.address, self.block_address, side="right").astype(np.int64) - 1

    def first_broken(self) -> str | None:
        """The rule that the layout breaks, or None."""
        end = self.address + self.size
        if np.any(self.size == 0) or np.any(end[:-1] > self.address[1:]):
            return "the segments of the layout are empty, overlap or are not in order"
        if np.any(self.reservation > self.address):
            return "a segment of the layout begins before its reservation"
        segment = self.segment_of_block
        ends = self.block_address + self.block_size
        if np.any(segment < 0) or np.any(ends > end[segment]):
            return "a block of the layout lies in none of its segments"
        if np.any(self.block_size == 0) or np.any(ends[:-1] > self.block_address[1:]):
            return "the blocks of the layout are empty, overlap or are not in order"
        return None


def to_json(layout: Layout) -> dict[str, list[int]]:
    """The columns as lists of numbers, without pools if there is none."""
    names = (*SEGMENT_COLUMNS, *BLOCK_COLUMNS, *(OPTIONAL_COLUMNS if layout.pool.any() else ()))
    return {
        _NAMES_IN_FILES.get(name, name): getattr(layout, name).astype(np.uint64).tolist()
        for name in names
    }


def from_json(columns: Mapping[str, Any]) -> Layout:
    """The layout of such columns; raises ValueError, TypeError or KeyError for others."""
    arrays = {
        name: np.array(columns[_NAMES_IN_FILES.get(name, name)], np.uint64).astype(dtype)
        for name, dtype in (SEGMENT_COLUMNS | BLOCK_COLUMNS).items()
    }
    pool = columns.get("pool", [0] * len(arrays["address"]))
    arrays["pool"] = np.array(pool, np.uint64).astype(OPTIONAL_COLUMNS["pool"])
    for names in ((*SEGMENT_COLUMNS, "pool"), BLOCK_COLUMNS):
        if len({arrays[name].shape for name in names}) > 1:
            raise ValueError("the columns of the layout differ in length")
    return Layout(**arrays)
