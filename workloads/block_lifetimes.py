# SPDX-License-Identifier: Apache-2.0
"""Lifetimes: how large each block is, when it begins and when it ends; what planners plan.

They come from a trace, or from a CSV in the format of google/minimalloc, one block per line:

    id,lower,upper,size
    b1,0,3,4096

A block is alive from `lower` up to but not including `upper`, in instants of any unit. As that
program does, the reader takes columns in any order, the names buffer, buffer_id, begin and start,
and `end` for an upper bound that is included. Columns of its other files are accepted if they have
no effect: an offset (and a step) of an older plan, an alignment of 1, and no gaps.
Other columns are ignored, and delimiters, quotes and numbers are as in `csv_dialect`.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.csv_dialect import ENCODING, Rows, first_line, header, short, whole_number
from allocbench.workloads.input_files import open_input
from allocbench.workloads.trace import (
    ALLOC,
    FREE,
    MARK,
    MAX_SIZE,
    Provenance,
    Trace,
    TraceError,
    spans,
)

HEADER = "id,lower,upper,size"
_LATEST = 2**32 - 2  # instant
_ALIASES = {"buffer": "id", "buffer_id": "id", "begin": "lower", "start": "lower"}
_NAMES = frozenset({*HEADER.split(","), "end"})
_MORE = {"alignment": ("", "1"), "gaps": ("",)}  # what may stand there


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """n blocks. Sizes in bytes.

    ids: n names, as the file has them; of a trace, the number of the alloc, from 0.
    size: uint64 (n,), at least 1.
    first, last: uint32 (n,), the block is alive from `first` up to but not including `last`.
    step: uint32 (n,), how many steps had begun before the block; None where steps are not known.
    coverage: what their trace lacks of its program, in one sentence; "" if nothing.
    """

    ids: Sequence[str]
    size: NDArray[np.uint64]
    first: NDArray[np.uint32]
    last: NDArray[np.uint32]
    step: NDArray[np.uint32] | None = None
    coverage: str = ""

    def __len__(self) -> int:
        return len(self.size)


def lifetimes(trace: Trace) -> Lifetimes:
    """The blocks of a valid trace, one for each alloc, in order; instants are events.

    A block is alive from its alloc up to its free, or to the end of the trace.
    """
    allocs, ends = spans(trace.op, trace.block)
    begins = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    steps = np.searchsorted(begins, allocs).astype(np.uint32) if len(begins) else None
    return Lifetimes(
        ids=[str(n) for n in range(len(allocs))],
        size=trace.size[allocs],
        first=allocs.astype(np.uint32),
        last=ends.astype(np.uint32),
        step=steps,
        coverage=trace.coverage.sentence,
    )


def read(file: BinaryIO, path: Path) -> Trace:
    """Read an open CSV of lifetimes as the allocs and frees of its n blocks in order of time.

    At one instant, blocks that end are freed before blocks that begin are allocated, both in the
    order of the file. The ids become labels. Instants have no unit, so there are no times. Raises
    TraceError naming the line that is wrong.
    """
    blocks = parse_lifetimes(file)
    n = len(blocks)
    time = np.concatenate([blocks.last, blocks.first])
    op = np.repeat([FREE, ALLOC], n).astype(np.uint8)
    order = np.argsort(time, kind="stable")  # a stable sort keeps frees first at one instant
    row = np.tile(np.arange(n, dtype=np.uint32), 2)
    size = np.concatenate([np.zeros(n, np.uint64), blocks.size])
    return Trace(
        op=op[order],
        block=row[order],
        size=size[order],
        stream=np.zeros(2 * n, np.uint16),
        labels=tuple(blocks.ids),
        label=row[order],
        provenance=Provenance.of_file(path),
    )


def is_lifetimes(head: bytes) -> bool:
    """Whether a file with this beginning is a CSV of lifetimes."""
    return header(first_line(head), _is_whole)[1] is not None


def read_lifetimes(path: str | Path) -> Lifetimes:
    """Read a CSV of lifetimes.

    Raises TraceError in one line that names the file, the line (the header is line 1) and what is
    wrong with it.
    """
    with open_input(path) as (file, _):
        return parse_lifetimes(file)


def parse_lifetimes(file: BinaryIO) -> Lifetimes:
    """Read an open CSV of lifetimes, and close it; TraceError names the line that is wrong."""
    with io.TextIOWrapper(file, encoding=ENCODING, newline="") as text:
        rows = Rows(text, _is_whole)
        if rows.names is None:
            raise TraceError(f"line {rows.line}: no header '{HEADER}'")
        blocks = list(_blocks(rows, rows.delimiter, rows.names))
    if not blocks:
        raise TraceError("holds no blocks")
    ids, first, last, size = zip(*blocks, strict=True)
    return Lifetimes(
        ids, np.array(size, np.uint64), np.array(first, np.uint32), np.array(last, np.uint32)
    )


def write_blocks(trace: Trace, sink: BinaryIO) -> None:
    """Write the blocks of a valid trace as a CSV of lifetimes to an open binary file.

    Instants are events, so no two blocks begin or end at the same one; a block that is never freed
    lives until after the last event. The format has no streams, marks, trims, times or labels.
    Raises TraceError if the trace has no blocks.
    """
    if not trace.allocs:
        raise TraceError("has no allocs, so there are no lifetimes to write")
    _write(lifetimes(trace), {}, sink)


def write_plan(blocks: Lifetimes, offsets: NDArray[np.uint64], sink: BinaryIO) -> None:
    """Write a CSV of lifetimes to an open binary file, with a column `offset` in bytes.

    Where steps are known, a last column `step` says how many had begun before the block.
    """
    steps = {} if blocks.step is None else {"step": blocks.step}
    _write(blocks, {"offset": offsets, **steps}, sink)


def read_offsets(path: str | Path, blocks: Lifetimes) -> NDArray[np.uint64]:
    """The offset in bytes of each block, from a CSV with the columns id and offset.

    Raises TraceError in one line that names the file, for a block without an offset, for an unknown
    id and for an offset that is no whole number.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype=str, usecols=["id", "offset"], keep_default_na=False)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path}: not a CSV with the columns id and offset: {error}") from error
    known, offsets = set(blocks.ids), dict[str, int]()
    for name, text in zip(table["id"], table["offset"], strict=True):
        offset = whole_number(text.strip(), ",")
        if name not in known or name in offsets:
            wrong = "is there twice" if name in offsets else "is no block"
            raise TraceError(f"{path}: '{short(name)}' {wrong}")
        if offset is None or not 0 <= offset <= MAX_SIZE:
            raise TraceError(
                f"{path}: '{short(name)}' has the offset '{short(text)}', which is no whole number"
                f" up to {MAX_SIZE:,}"
            )
        offsets[name] = offset
    if missing := [name for name in blocks.ids if name not in offsets]:
        raise TraceError(f"{path}: block {short(missing[0])} has no offset")
    return np.array([offsets[name] for name in blocks.ids], np.uint64)


def _write(blocks: Lifetimes, more: Mapping[str, NDArray[Any]], sink: BinaryIO) -> None:
    import pandas as pd

    columns = (blocks.ids, blocks.first, blocks.last, blocks.size)
    table = pd.DataFrame(dict(zip(HEADER.split(","), columns, strict=True)) | {**more})
    table.to_csv(sink, index=False, lineterminator="\n")


def _named(names: Sequence[str]) -> list[str]:
    return [_ALIASES.get(name, name) for name in names]


def _is_whole(names: Sequence[str]) -> bool:
    """Whether a header has each column of HEADER once; `end` stands for `upper`."""
    columns = [name for name in _named(names) if name in _NAMES or name in _MORE]
    ends = {"upper", "end"}.intersection(columns)
    return (
        len(set(columns)) == len(columns)
        and len(ends) == 1
        and {"id", "lower", "size"} <= {*columns}
    )


def _blocks(
    rows: Rows, delimiter: str, names: Sequence[str]
) -> Iterator[tuple[str, int, int, int]]:
    """The blocks of the rows after the header."""
    lines: dict[str, int] = {}
    columns = {name: n for n, name in enumerate(_named(names))}
    is_inclusive = "end" in columns
    upper_name = "end" if is_inclusive else "upper"
    limits = {"lower": (0, _LATEST), upper_name: (0, _LATEST - is_inclusive), "size": (1, MAX_SIZE)}
    places = [(field, columns[field], *limits[field]) for field in limits]
    others = [(field, columns[field], fine) for field, fine in _MORE.items() if field in columns]
    example = delimiter.join(
        {"id": "ID", "lower": "FROM", upper_name: "TO", "size": "SIZE"}.get(name, "...")
        for name in columns
    )
    for row in rows.filled(example):
        name = row[columns["id"]].strip()
        if not any(field.strip() for field in row):
            continue
        if not name:
            rows.refuse("the id is missing", example)
        if name in lines:
            rows.refuse(f"line {lines[name]} already has the id '{short(name)}'", "another id")
        lines[name] = rows.line
        values = []
        for field, place, least, most in places:
            text = row[place].strip()
            value = whole_number(text, delimiter)
            if value is None or not least <= value <= most:
                rows.refuse(
                    f"{field} '{short(text)}' is not a whole number from {least} to {most}", example
                )
            values.append(value)
        for field, place, fine in others:
            if row[place].strip() not in fine:
                accepted = " or ".join(repr(text) for text in fine)
                rows.refuse(f"{field} '{short(row[place])}' is not supported", accepted)
        lower, upper, size = values
        if lower >= upper + is_inclusive:
            rows.refuse(f"{upper_name} {upper} is not above lower {lower}", example)
        yield name, lower, upper + is_inclusive, size
