# SPDX-License-Identifier: Apache-2.0
"""Traces as plain CSV for other tools, with one alloc (`a`) or free (`f`) per line.

    op,id,size
    a,0,4096
    f,0,

CSV cannot store marks, times or labels. The first row of a part of a program tells which part
(`written_csv.PART`). A trace with private pools has the columns op,id,size,stream,pool, and rows
for trims and for the events of pools (`pool_csv`); others can have neither trims nor streams. A
file in exactly the form above is read in small parts into arrays of the final length, so that
reading needs little memory beyond the trace. Every other form, and every error, is left to
`written_csv`, which reads row by row.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from allocbench.workloads._native import BlockNumbers
from allocbench.workloads.coverage import WHOLE, Coverage
from allocbench.workloads.pool_csv import rows_with_pools
from allocbench.workloads.streaming import Arrays, Source
from allocbench.workloads.trace import ALLOC, COLUMNS, FREE, Provenance, Trace, TraceError
from allocbench.workloads.written_csv import coverage_in, is_written, part_row, read_written

HEADER = "op,id,size"
_SHORTEST_ROW = len("f,0\n")
_LONGEST_PART = 1 << 16
_PART_BYTES = 1 << 18
_PART_EVENTS = 1 << 15
_IDS = 2**32
_FORM = (
    pacsv.ReadOptions(column_names=HEADER.split(","), block_size=_PART_BYTES, use_threads=False),
    pacsv.ParseOptions(quote_char=False, ignore_empty_lines=False),
    pacsv.ConvertOptions(
        column_types={"op": pa.string(), "id": pa.uint32(), "size": pa.uint64()}, null_values=[""]
    ),
)


def is_csv(head: bytes) -> bool:
    """Whether a file with this beginning is a trace in plain CSV."""
    return _is_plain(head) or is_written(head)


def _is_plain(head: bytes) -> bool:
    return head.partition(b"\n")[0].rstrip(b"\r") == HEADER.encode()


def write_csv(trace: Trace, sink: BinaryIO) -> None:
    """Write the allocs and frees of a trace to an open binary file.

    Raises TraceError when they happen on more than one stream, for which CSV has no place.
    """
    head, *rows_of_pools = rows_with_pools(trace) if trace.pool is not None else [f"{HEADER}\n"]
    if trace.pool is None and np.any(trace.stream != trace.stream[:1]):
        raise TraceError("CSV holds one stream and this trace has several; write .parquet")
    sink.write(head.encode())
    if not trace.coverage.whole:
        sink.write(part_row(trace.coverage).encode())
    if trace.pool is not None:
        sink.writelines(row.encode() for row in rows_of_pools)
        return
    options = pacsv.WriteOptions(include_header=False, quoting_style="none")
    for start in range(0, len(trace), _PART_EVENTS):
        part = slice(start, start + _PART_EVENTS)
        kept = trace.op[part] <= FREE
        is_alloc = trace.op[part][kept] == ALLOC
        rows = {
            "op": np.where(is_alloc, "a", "f"),
            "id": trace.block[part][kept],
            "size": pa.array(trace.size[part][kept], mask=~is_alloc),
        }
        pacsv.write_csv(pa.table(rows), sink, options)


class _OtherFormError(TraceError):
    """A row is not exactly as allocbench writes it."""

    def __init__(self) -> None:
        super().__init__("the file has changed")  # if it was read before


def read_csv(file: BinaryIO, path: Path) -> Trace:
    """Read the trace of an open CSV file, named by its path.

    Raises TraceError showing the first line that breaks the rule, and what was expected.
    """
    if _begins_plain(file):
        with suppress(_OtherFormError):
            trace = _read_plain(file, path)
            if not trace.first_broken():
                return trace
    file.seek(0)
    return read_written(file, path)


def stream_csv(file: BinaryIO, path: Path, more_than: int) -> Source | None:
    """How to read an open CSV file with more than some events part by part.

    None: it has fewer events, another form, or a row that breaks the rule, which `read_csv` shows.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size < more_than * _SHORTEST_ROW or not _begins_plain(file):
        return None
    events = allocs = most = 0
    numbers = BlockNumbers()
    try:
        coverage, body, _ = _part(file)
        for arrays in _parts(file, body):
            trace = Trace(**arrays)
            if trace.first_broken_in(slice(0, len(trace)), _IDS, numbers) is not None:
                return None
            events, allocs = events + len(trace), allocs + trace.allocs
            most = max(most, trace.blocks)
    except _OtherFormError:
        return None
    if events <= more_than or most > allocs:
        return None

    def read(names: tuple[str, ...]) -> Iterator[Arrays]:
        for arrays in _parts(file, body):
            yield {name: arrays[name] for name in names}

    head = {"provenance": Provenance.of_file(path), "coverage": coverage}
    return Source(events, allocs, tuple(COLUMNS), head, read)


def _begins_plain(file: BinaryIO) -> bool:
    return _is_plain(file.readline(len(HEADER) + 2))


def _part(file: BinaryIO) -> tuple[Coverage, int, int]:
    """What the row after the header says of the part that the trace is, where events begin, and
    the most rows there.

    Raises _OtherFormError if an id may be hexadecimal, which is a name in CSV.
    """
    body = file.tell()
    line = file.readline(_LONGEST_PART)
    coverage = coverage_in(line.decode(errors="replace"))
    if coverage is None:
        file.seek(body)
    body, rows = file.tell(), 1
    while part := file.read(_PART_BYTES):
        if b"x" in part.lower():
            raise _OtherFormError
        rows += part.count(b"\n")
    return coverage or WHOLE, body, rows


def _parts(file: BinaryIO, body: int) -> Iterator[Arrays]:
    """The arrays of the rows that begin at `body`; raises _OtherFormError."""
    if file.seek(0, os.SEEK_END) == body:
        return
    file.seek(body)
    try:
        for op, block, size in (part.columns for part in pacsv.open_csv(file, *_FORM)):
            is_alloc, is_free = (_mask(pc.equal(op, letter)) for letter in "af")
            has_size = _mask(size.is_valid())
            if block.null_count or (is_alloc != has_size).any() or (is_free == has_size).any():
                raise _OtherFormError
            ops, stream = np.where(is_free, FREE, ALLOC).astype(np.uint8), np.zeros(len(op), "u2")
            columns = ops, block.to_numpy(), size.fill_null(0).to_numpy(), stream
            yield dict(zip(COLUMNS, columns, strict=True))
    except pa.ArrowInvalid as error:
        raise _OtherFormError from error


def _mask(column: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return mask


def _read_plain(file: BinaryIO, path: Path) -> Trace:
    """The trace of the rows that follow the header; raises _OtherFormError."""
    coverage, body, rows = _part(file)
    columns: dict[str, Any] = {name: np.empty(rows, dtype) for name, dtype in COLUMNS.items()}
    rows_read = 0
    for arrays in _parts(file, body):
        part = slice(rows_read, rows_read + len(arrays["op"]))
        for name, array in arrays.items():
            columns[name][part] = array
        rows_read = part.stop
    columns = {name: array[:rows_read] for name, array in columns.items()}
    return Trace(**columns, provenance=Provenance.of_file(path), coverage=coverage)
