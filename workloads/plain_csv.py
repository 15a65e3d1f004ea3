# SPDX-License-Identifier: Apache-2.0
"""Traces as plain CSV for other tools, with one alloc (`a`) or free (`f`) per line.

    op,id,size
    a,0,4096
    f,0,

CSV cannot store marks, times or labels. The first row of a part of a program tells which part
(`written_csv.PART`). A trace with private pools has the columns
op,id,size,stream,pool, and rows for trims and for the events of pools (`pool_csv`); others can have
neither trims nor streams. A file in exactly the form above is read in small parts into arrays of
the final length, so that reading needs little memory beyond the trace. Every other form, and every
error, is left to `written_csv`, which reads row by row.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from allocbench.workloads._native import BlockNumbers
from allocbench.workloads.coverage import WHOLE, Coverage
from allocbench.workloads.pool_csv import rows_with_pools
from allocbench.workloads.streaming import Arrays, Source
from allocbench.workloads.trace import ALLOC, COLUMNS, FREE, Provenance, Trace, TraceError
from allocbench.workloads.written_csv import coverage_in, is_written, part_row, read_written

HEADER = "op,id,size"
_ROW = r"^(?:a,(?P<alloc>[0-9]{1,10}),(?P<size>[0-9]{1,19})|f,(?P<free>[0-9]{1,10}),?)\r?\n?$"
_MAX_ID = 2**32 - 1
_SHORTEST_ROW = len("f,0\n")
_LONGEST_PART = 1 << 16
_PART_BYTES = 1 << 18
_PART_EVENTS = 1 << 15


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


def read_csv(file: BinaryIO, path: Path) -> Trace:
    """Read the trace of an open CSV file, named by its path.

    Raises TraceError showing the first line that breaks the rule, and what was expected.
    """
    trace = _read_plain(file, path) if _begins_plain(file) else None
    if trace is not None and not trace.first_broken():
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
    coverage, body = _part(file)
    events = allocs = most = 0
    numbers = BlockNumbers()
    for arrays in _plain_parts(file, body):
        if arrays is None:
            return None
        trace = Trace(**arrays)
        if trace.first_broken_in(slice(0, len(trace)), _MAX_ID + 1, numbers) is not None:
            return None
        events, allocs, most = events + len(trace), allocs + trace.allocs, max(most, trace.blocks)
    if events <= more_than or most > allocs:
        return None

    def read(names: tuple[str, ...]) -> Iterator[Arrays]:
        for arrays in _plain_parts(file, body):
            if arrays is None:
                raise TraceError("the file has changed")
            yield {name: arrays[name] for name in names}

    head = {"provenance": _provenance(path), "coverage": coverage}
    return Source(events, allocs, tuple(COLUMNS), head, read)


def _begins_plain(file: BinaryIO) -> bool:
    return _is_plain(file.readline(len(HEADER) + 2))


def _part(file: BinaryIO) -> tuple[Coverage, int]:
    """What the row after the header says of the part that the trace is, and where events begin."""
    body = file.tell()
    line = file.readline(_LONGEST_PART)
    coverage = coverage_in(line.decode(errors="replace"))
    if coverage is None:
        file.seek(body)
    return coverage or WHOLE, file.tell()


def _plain_parts(file: BinaryIO, body: int) -> Iterator[Arrays | None]:
    """The arrays of the rows that begin at `body`, and None for the first of another form."""
    file.seek(body)
    for lines in _whole_lines(file):
        parsed = _parse_rows(lines)
        if parsed is None:
            yield None
            return
        yield dict(zip(COLUMNS, (*parsed, np.zeros(len(lines), np.uint16)), strict=True))


def _read_plain(file: BinaryIO, path: Path) -> Trace | None:
    """The trace of the rows that follow the header; None if a row has another form."""
    coverage, body = _part(file)
    rows = 1 + sum(part.count(b"\n") for part in iter(lambda: file.read(_PART_BYTES), b""))
    columns: dict[str, Any] = {name: np.empty(rows, dtype) for name, dtype in COLUMNS.items()}
    rows_read = 0
    for arrays in _plain_parts(file, body):
        if arrays is None:
            return None
        part = slice(rows_read, rows_read + len(arrays["op"]))
        for name, array in arrays.items():
            columns[name][part] = array
        rows_read = part.stop
    columns = {name: array[:rows_read] for name, array in columns.items()}
    return Trace(**columns, provenance=_provenance(path), coverage=coverage)


def _provenance(path: Path) -> Provenance:
    return Provenance(name=path.stem, kind="imported", source=path.name)


def _whole_lines(file: BinaryIO) -> Iterator[pa.BinaryArray]:
    """The lines of a file in batches, each line with its newline."""
    rest = b""
    while read := file.read(_PART_BYTES):
        text = rest + read
        cut = text.rfind(b"\n") + 1 or len(text)  # a line as long as a part is no row anyway
        yield _split(text[:cut])
        rest = text[cut:]
    if rest:
        yield _split(rest)


def _split(text: bytes) -> pa.BinaryArray:
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    offsets = np.append(0, ends).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _parse_rows(lines: pa.BinaryArray) -> tuple[Any, Any, Any] | None:
    """Op, block and size of each line; None if one of them has another form."""
    matches = pc.extract_regex(lines, _ROW)
    alloc, size, free = matches.flatten()
    block = _numbers(pc.binary_join_element_wise(alloc, free, b""))
    broken = ~matches.is_valid().to_numpy(zero_copy_only=False) | (block > _MAX_ID)
    if broken.any():
        return None
    is_free = pc.equal(size, b"").to_numpy(zero_copy_only=False)
    op = np.where(is_free, FREE, ALLOC).astype(np.uint8)
    return op, block.astype(np.uint32), _numbers(size)


def _numbers(digits: pa.BinaryArray) -> Any:
    """uint64 of strings of digits; 0 for an empty one and for null."""
    padded = pc.binary_join_element_wise(b"0", pc.fill_null(digits, b""), b"")
    return padded.cast(pa.string()).cast(pa.uint64()).to_numpy()
