# SPDX-License-Identifier: Apache-2.0
"""Layouts in files: what an allocator held when a trace began, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from allocbench.base.trace import Layout as Layout

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


def to_json(layout: Layout) -> dict[str, list[int]]:
    """The columns as lists of numbers, without pools if there is none."""
    names = (*SEGMENT_COLUMNS, *BLOCK_COLUMNS, *(OPTIONAL_COLUMNS if layout.pool.any() else ()))
    return {
        _NAMES_IN_FILES.get(name, name): getattr(layout, name).astype(np.uint64).tolist()
        for name in names
    }


def from_json(columns: Mapping[str, Any]) -> Layout:
    """The layout of such columns; raises ValueError, TypeError or KeyError for others."""
    arrays: dict[str, Any] = {
        name: np.array(columns[_NAMES_IN_FILES.get(name, name)], np.uint64).astype(dtype)
        for name, dtype in (SEGMENT_COLUMNS | BLOCK_COLUMNS).items()
    }
    pool = columns.get("pool", [0] * len(arrays["address"]))
    arrays["pool"] = np.array(pool, np.uint64).astype(OPTIONAL_COLUMNS["pool"])
    for names in ((*SEGMENT_COLUMNS, "pool"), BLOCK_COLUMNS):
        if len({arrays[name].shape for name in names}) > 1:
            raise ValueError("the columns of the layout differ in length")
    return Layout(**arrays)
