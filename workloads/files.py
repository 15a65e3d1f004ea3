# SPDX-License-Identifier: Apache-2.0
"""Traces on disk: Parquet, which holds everything, and plain CSV, which other tools read.

The CSV has one alloc (`a`) or free (`f`) a line; the last comma of a free may be left out:

    op,id,size
    a,0,4096
    f,0,

It knows no marks, trims, streams, times or labels. Both formats are read in small parts into
arrays made once at full length, so that reading takes little memory beyond the trace itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from workloads.trace import (
    ALLOC,
    COLUMNS,
    FREE,
    MAX_SIZE,
    OPTIONAL_COLUMNS,
    Provenance,
    Trace,
    TraceError,
)

FORMAT_VERSION = 1
_METADATA_KEY = b"allocbench.trace"
_PARQUET_MAGIC = b"PAR1"
_CSV_HEADER = b"op,id,size"
_CSV_ROW = r"^(?:a,(?P<alloc>[0-9]{1,10}),(?P<size>[0-9]{1,19})|f,(?P<free>[0-9]{1,10}),?)\r?\n?$"
_MAX_ID = 2**32 - 1
_PART_BYTES = 1 << 18
_PART_EVENTS = 1 << 15
_ROW_GROUP_EVENTS = 1 << 20


def read(path: str | Path) -> Trace:
    """Read a trace, Parquet or CSV as its content says, and validate it.

    Raises TraceError in one line that names the file, the broken rule and where: the line of a
    CSV (the header is line 1) or the event of a Parquet file (the first is event 0).
    """
    path = Path(path)
    with errors_naming(path):
        if path.exists() and not path.is_file():
            raise TraceError("is not a regular file")
        with path.open("rb") as file:
            is_parquet = file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
            file.seek(0)
            trace = _read_parquet(file) if is_parquet else _read_csv(file, path)
        if not len(trace):
            raise TraceError("holds no events")
        if broken := trace.first_broken():
            where = f"event {broken.event}" if is_parquet else f"line {_line(broken.event or 0)}"
            raise TraceError(f"{where}: {broken.rule}")
    return trace


def write(trace: Trace, path: str | Path) -> None:
    """Write a valid trace as its path's extension says: .parquet or .csv.

    The file appears whole or not at all. A CSV leaves out marks, trims, times and labels.
    Raises TraceError when the trace is not valid, the extension is another, the trace has
    several streams and the format is CSV, or the path cannot be written.
    """
    path = Path(path)
    with errors_naming(path):
        writer = {".parquet": write_parquet, ".csv": write_csv}.get(path.suffix)
        if writer is None:
            raise TraceError("the extension must say the format, .parquet or .csv")
        trace.validate()
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                writer(trace, file)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_parquet(trace: Trace, sink: BinaryIO) -> None:
    """Write all of a trace to an open binary file, as zstd-compressed Parquet."""
    header = {
        "version": FORMAT_VERSION,
        "labels": trace.labels,
        "provenance": asdict(trace.provenance),
    }
    table = pa.table(trace.columns())
    with pq.ParquetWriter(
        sink, table.schema, compression="zstd", compression_level=9, store_schema=False
    ) as writer:
        writer.add_key_value_metadata({_METADATA_KEY: json.dumps(header, sort_keys=True)})
        writer.write_table(table, row_group_size=_ROW_GROUP_EVENTS)


def write_csv(trace: Trace, sink: BinaryIO) -> None:
    """Write the allocs and frees of a trace to an open binary file.

    Raises TraceError when they happen on more than one stream, for which CSV has no place.
    """
    if np.any(trace.stream != trace.stream[:1]):
        raise TraceError("CSV holds one stream and this trace has several; write .parquet")
    sink.write(_CSV_HEADER + b"\n")
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


def _read_parquet(file: BinaryIO) -> Trace:
    parquet = pq.ParquetFile(file, buffer_size=_PART_BYTES, pre_buffer=False)
    labels, provenance = _parse_header((parquet.metadata.metadata or {}).get(_METADATA_KEY))
    schema = parquet.schema_arrow
    for name, dtype in (COLUMNS | OPTIONAL_COLUMNS).items():
        if name in schema.names and str(schema.field(name).type) != dtype:
            raise TraceError(f"column '{name}' is {schema.field(name).type}, not {dtype}")
        if name in COLUMNS and name not in schema.names:
            raise TraceError(f"column '{name}' is missing")
    present = {n: d for n, d in (COLUMNS | OPTIONAL_COLUMNS).items() if n in schema.names}

    arrays: dict[str, Any] = {
        name: np.empty(parquet.metadata.num_rows, dtype) for name, dtype in present.items()
    }
    done = 0
    for batch in parquet.iter_batches(_PART_EVENTS, columns=list(arrays), use_threads=False):
        for name, array in arrays.items():
            column = batch.column(name)
            if column.null_count:
                row = done + int(pc.index(column.is_null(), True).as_py())
                raise TraceError(f"event {row}: column '{name}' has no value")
            array[done : done + len(column)] = column.to_numpy()
        done += len(batch)
    if done != parquet.metadata.num_rows:
        raise TraceError(f"holds {done} events, but says {parquet.metadata.num_rows}")
    return Trace(**arrays, labels=labels, provenance=provenance)


def _parse_header(text: bytes | None) -> tuple[tuple[str, ...], Provenance]:
    if text is None:
        raise TraceError("is Parquet, but not a trace: it has no 'allocbench.trace' metadata")
    header = json.loads(text)
    if not isinstance(header, dict) or not isinstance(version := header.get("version"), int):
        raise TraceError("the trace's metadata has no format version")
    if version > FORMAT_VERSION:
        raise TraceError(f"trace format {version} is newer than this program's {FORMAT_VERSION}")
    labels, provenance = header.get("labels"), header.get("provenance")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise TraceError("the trace's metadata has no list of labels")
    if not isinstance(provenance, dict):
        raise TraceError("the trace's metadata has no provenance")
    defaults = asdict(Provenance())
    for key, value in provenance.items():
        if key not in defaults:
            raise TraceError(f"unknown provenance '{key}'")
        expected = (int, type(None)) if key == "seed" else type(defaults[key])
        if not isinstance(value, expected):
            raise TraceError(f"provenance '{key}' is {value!r}")
    return tuple(labels), Provenance(**provenance)


def _read_csv(file: BinaryIO, path: Path) -> Trace:
    header = file.readline(len(_CSV_HEADER) + 2)
    if not header:
        raise TraceError("is empty")
    if header.rstrip(b"\r\n") != _CSV_HEADER:
        raise TraceError(f"line 1: neither Parquet nor CSV: no header '{_CSV_HEADER.decode()}'")
    body = file.tell()
    rows = 1 + sum(part.count(b"\n") for part in iter(lambda: file.read(_PART_BYTES), b""))
    file.seek(body)

    op, block = np.empty(rows, np.uint8), np.empty(rows, np.uint32)
    size = np.empty(rows, np.uint64)
    done = 0
    for lines in _whole_lines(file):
        part = slice(done, done + len(lines))
        op[part], block[part], size[part] = _parse_rows(lines, done)
        done += len(lines)
    return Trace(
        op=op[:done],
        block=block[:done],
        size=size[:done],
        stream=np.zeros(done, np.uint16),
        provenance=Provenance(name=path.stem, kind="imported", source=path.name),
    )


def _whole_lines(file: BinaryIO) -> Iterator[pa.BinaryArray]:
    """The lines of a file, some at a time, each with its newline."""
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


def _parse_rows(lines: pa.BinaryArray, before: int) -> tuple[Any, Any, Any]:
    """Op, block and size of each line; `before` is the number of rows that come before them."""
    matches = pc.extract_regex(lines, _CSV_ROW)
    alloc, size, free = matches.flatten()
    block = _numbers(pc.binary_join_element_wise(alloc, free, b""))
    broken = ~matches.is_valid().to_numpy(zero_copy_only=False) | (block > _MAX_ID)
    if broken.any():
        row = int(broken.argmax())
        raise TraceError(f"line {_line(before + row)}: {_fault(lines[row].as_py())}")
    op = np.where(pc.equal(size, b"").to_numpy(zero_copy_only=False), FREE, ALLOC)
    return op, block, _numbers(size)


def _numbers(digits: pa.BinaryArray) -> Any:
    """uint64 of strings of digits; 0 for an empty one and for null."""
    padded = pc.binary_join_element_wise(b"0", pc.fill_null(digits, b""), b"")
    return padded.cast(pa.string()).cast(pa.uint64()).to_numpy()


def _fault(row: bytes) -> str:
    """What is wrong with a row that is none."""
    text = row.decode("ascii", "backslashreplace").rstrip("\r\n")
    op, *rest = text.split(",")
    if op not in ("a", "f"):
        return f"unknown op {_shown(op)}; 'a' allocates, 'f' frees"
    if len(rest) > 2:
        return f"{len(rest) + 1} fields, not 3: {_shown(text)}"
    if len(rest) < (2 if op == "a" else 1):
        return f"a field is missing: {_shown(text)}"
    if not _is_number(rest[0], _MAX_ID):
        return f"id {_shown(rest[0])} is not a whole number from 0 to {_MAX_ID}"
    if op == "f":
        return f"a free takes no size: {_shown(text)}"
    return f"size {_shown(rest[1])} is not a whole number from 1 to {MAX_SIZE}"


def _is_number(text: str, most: int) -> bool:
    return text.isdecimal() and len(text) <= 20 and int(text) <= most


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _line(event: int) -> int:
    """Line of a CSV that holds an event: lines count from 1 and the first is the header."""
    return event + 2


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Turn whatever reading or writing may raise into a TraceError of one line."""
    try:
        yield
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or repr(error)
        raise TraceError(f"{path}: {reason.splitlines()[0]}") from error
