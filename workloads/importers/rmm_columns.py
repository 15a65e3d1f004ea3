# SPDX-License-Identifier: Apache-2.0
"""The rows of an RMM log as RMM writes them, read as columns.

    2342727,15:47:02.841961,allocate,0x7f0012400000,1048576,0x0

Rows of any other form are left to `rmm_log`, which reads one row at a time and names the line of
an error.
"""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads._native import RmmRows

_BLOCK = 1 << 20  # bytes read at a time


NOWHERE: int = RmmRows.NOWHERE
"""The address of a request that failed. No pointer is as large."""


class OtherForm(Exception):  # noqa: N818  not an error: another reader takes over
    """A row has a form that RMM does not write."""


class Rows(NamedTuple):
    """n rows: is_alloc: bool (n,). address, size: uint64 (n,), bytes. stream: int64 (n,). time_ns:
    int64 (n,), since midnight. failures: how many requests failed; each is an alloc and a free at
    NOWHERE. rest: the last line, if it has no line break and is none that RMM writes.
    """

    is_alloc: NDArray[np.bool_]
    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    stream: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    failures: int
    rest: bytes


def rows_of(file: BinaryIO) -> Rows:
    """The rows of a log from the current position on; raises OtherForm."""
    rows, rest = RmmRows(), b""
    while block := file.read(_BLOCK):
        lines = block if block.endswith(b"\n") else block + file.readline()
        end = lines.rfind(b"\n") + 1
        rest = lines[end:]
        if rest and RmmRows().read(rest):
            end, rest = len(lines), b""
        if not rows.read(lines[:end]):
            raise OtherForm
    is_alloc, address, size, stream, time = rows.take()
    return Rows(is_alloc.view(np.bool_), address, size, stream, time, rows.failures, rest)
