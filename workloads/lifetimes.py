# SPDX-License-Identifier: Apache-2.0
"""Lifetimes: how large each block is, when it begins and when it ends; what planners plan.

They come from a trace, or from a CSV in the format of google/minimalloc, one block a line:

    id,lower,upper,size
    b1,0,3,4096

A block is alive from `lower` up to but not including `upper`, in instants of any unit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from workloads.errors import errors_naming
from workloads.trace import ALLOC, FREE, MARK, MAX_SIZE, Trace, TraceError, by_block

HEADER = "id,lower,upper,size"
_LATEST = 2**32 - 2  # instant


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """n blocks. Sizes in bytes.

    ids: n names, as the file has them; of a trace, the number of the alloc, from 0.
    size: uint64 (n,), at least 1.
    first, last: uint32 (n,), the block is alive from `first` up to but not including `last`.
    step: uint32 (n,), how many steps had begun before the block; None where steps are not known.
    """

    ids: Sequence[str]
    size: NDArray[np.uint64]
    first: NDArray[np.uint32]
    last: NDArray[np.uint32]
    step: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.size)


def lifetimes(trace: Trace) -> Lifetimes:
    """The blocks of a valid trace, one for each alloc, in order; instants are events.

    A block is alive from its alloc up to its free, or to the end of the trace.
    """
    events = by_block(trace.op, trace.block)
    is_alloc = trace.op[events] == ALLOC
    # What follows an alloc of the same block is its free; of another block, its alloc.
    following = np.append(events[1:], len(trace))
    freed = np.append(trace.op[events[1:]] == FREE, False)
    ends = np.where(freed, following, len(trace))[is_alloc]
    allocs = events[is_alloc]
    order = np.argsort(allocs)
    begins = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    steps = np.searchsorted(begins, allocs[order]).astype(np.uint32) if len(begins) else None
    return Lifetimes(
        ids=[str(n) for n in range(len(allocs))],
        size=trace.size[allocs[order]],
        first=allocs[order].astype(np.uint32),
        last=ends[order].astype(np.uint32),
        step=steps,
    )


def is_lifetimes(head: bytes) -> bool:
    """Whether a file that begins so is a CSV of lifetimes."""
    return head.partition(b"\n")[0].rstrip(b"\r") == HEADER.encode()


def holds_lifetimes(path: str | Path) -> bool:
    """Whether a file begins as a CSV of lifetimes does."""
    try:
        with Path(path).open("rb") as file:
            return is_lifetimes(file.readline(len(HEADER) + 2))
    except OSError:
        return False


def read_lifetimes(path: str | Path) -> Lifetimes:
    """Read a CSV of lifetimes.

    Raises TraceError in one line that names the file, the line (the header is line 1) and what is
    wrong with it.
    """
    path = Path(path)
    with errors_naming(path), path.open("rb") as file:
        return parse_lifetimes(file)


def parse_lifetimes(file: BinaryIO) -> Lifetimes:
    """Read an open CSV of lifetimes; raises TraceError naming the line that is wrong."""
    rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
    if next(rows, []) != HEADER.split(","):
        raise TraceError(f"line 1: no header '{HEADER}'")
    found = list(_blocks(rows))
    if not found:
        raise TraceError("holds no blocks")
    ids, first, last, size = zip(*found, strict=True)
    return Lifetimes(
        ids, np.array(size, np.uint64), np.array(first, np.uint32), np.array(last, np.uint32)
    )


def write_lifetimes(blocks: Lifetimes, sink: BinaryIO) -> None:
    """Write a CSV of lifetimes to an open binary file."""
    _write(HEADER, blocks, [], sink)


def write_plan(blocks: Lifetimes, offsets: NDArray[np.uint64], sink: BinaryIO) -> None:
    """Write a CSV of lifetimes to an open binary file, with a column `offset` in bytes.

    Where steps are known, a last column `step` says how many had begun before the block.
    """
    more = {"offset": offsets} | ({} if blocks.step is None else {"step": blocks.step})
    _write(",".join([HEADER, *more]), blocks, [column.tolist() for column in more.values()], sink)


def _write(header: str, blocks: Lifetimes, more: Iterable[list[int]], sink: BinaryIO) -> None:
    text = io.TextIOWrapper(sink, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(header.split(","))
    columns = (blocks.first.tolist(), blocks.last.tolist(), blocks.size.tolist(), *more)
    rows.writerows(zip(blocks.ids, *columns, strict=True))
    text.flush()
    text.detach()


def _blocks(rows: Iterable[list[str]]) -> Iterator[tuple[str, int, int, int]]:
    """The blocks of the lines after the header."""
    lines: dict[str, int] = {}
    for line, row in enumerate(rows, start=2):
        if len(row) != 4:
            raise TraceError(f"line {line}: {len(row)} fields, not 4")
        name, *numbers = row
        if name in lines:
            raise TraceError(f"line {line}: id '{name}' is on line {lines[name]} already")
        lines[name] = line
        limits = {"lower": (0, _LATEST), "upper": (0, _LATEST), "size": (1, MAX_SIZE)}
        for text, (field, (least, most)) in zip(numbers, limits.items(), strict=True):
            if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
                expected = f"a whole number from {least} to {most}"
                raise TraceError(f"line {line}: {field} '{text}' is not {expected}")
        lower, upper, size = map(int, numbers)
        if lower >= upper:
            raise TraceError(f"line {line}: upper {upper} is not above lower {lower}")
        yield name, lower, upper, size
