# SPDX-License-Identifier: Apache-2.0
"""Traces as Parquet, the format that can hold every part of a trace.

A file is read in small parts into arrays that are preallocated at full length, so that reading
needs little memory beyond the trace itself; or part by part whenever the events are needed.

Parquet that another program wrote, such as pandas, with the columns of one of the CSV formats is
turned into CSV, which the reader of that format reads. Columns with lists or structures are left
out. A name, number or time may have any type, and null is an empty field.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from allocbench.base.trace import Layout
from allocbench.workloads import coverage
from allocbench.workloads.containers import IN_MEMORY, PARQUET, most_expanded
from allocbench.workloads.csv_dialect import short
from allocbench.workloads.streaming import PART_EVENTS, Arrays, Source
from allocbench.workloads.trace import (
    ALLOC,
    COLUMNS,
    OPTIONAL_COLUMNS,
    PrivatePool,
    Provenance,
    Trace,
    TraceError,
)

FORMAT_VERSION = 2
_WITHOUT_POOLS = 1  # the version of files that have no private pools
METADATA_KEY = b"allocbench.trace"
_PART_BYTES = 1 << 18
_PART_EVENTS = 1 << 15
_ROW_GROUP_EVENTS = 1 << 20
_MOST_EVENTS = 100_000_000
_MOST_EVENTS_PER_BYTE = 100
"""A file may hold that many events, or that many for each of its bytes, whichever is more."""
_PART_ROWS = 1 << 10
_MOST_ROWS = 1_000_000
_MOST_ROWS_PER_BYTE = 10  # the same for Parquet of other programs
_LONGEST = 1 << 16  # characters of a value
_SEGMENT_COLUMNS = {
    "address": "uint64",
    "size": "uint64",
    "stream": "uint16",
    "small": "bool",
    "reservation": "uint64",
    "rank": "uint32",
}
_POOL_COLUMN = {"pool": "uint16"}
_BLOCK_COLUMNS = {"block_address": "uint64", "block_size": "uint64"}
_NAMES_IN_FILES = {"reservation": "space"}  # where they differ from those of the columns


def is_parquet(head: bytes) -> bool:
    """Whether the first bytes of a file are those of Parquet."""
    return head.startswith(PARQUET)


def write_parquet(trace: Trace, sink: BinaryIO) -> None:
    """Write a complete trace to an open binary file as zstd-compressed Parquet."""
    header = {
        "version": _WITHOUT_POOLS if trace.pool is None else FORMAT_VERSION,
        "labels": trace.labels,
        "provenance": asdict(trace.provenance),
    }
    if trace.pool is not None:
        header["pools"] = [asdict(pool) for pool in trace.pools]
    if trace.layout is not None:
        header["layout"] = layout_to_json(trace.layout)
    if trace.coverage != coverage.WHOLE:
        header["coverage"] = coverage.to_json(trace.coverage)
    table = pa.table(trace.columns())
    with pq.ParquetWriter(
        sink, table.schema, compression="zstd", compression_level=9, store_schema=False
    ) as writer:
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(header, sort_keys=True)})
        writer.write_table(table, row_group_size=_ROW_GROUP_EVENTS)


def read_parquet(file: BinaryIO, path: Path) -> Trace:
    """Read a trace from an open Parquet file with METADATA_KEY. Raises TraceError."""
    parquet, columns, header = _open(file)
    events = parquet.metadata.num_rows
    arrays: dict[str, Any] = {name: np.empty(events, dtype) for name, dtype in columns.items()}
    rows_read = 0
    for part in _parts(parquet, tuple(columns), _PART_EVENTS):
        count = len(part["op"])
        for name, array in arrays.items():
            array[rows_read : rows_read + count] = part[name]
        rows_read += count
    return Trace(**arrays, **header)


def stream_parquet(file: BinaryIO, path: Path, more_than: int) -> Source | None:
    """How to read an open Parquet file with more than some events part by part.

    None: it has fewer events. Raises TraceError like `read_parquet`.
    """
    parquet, columns, header = _open(file)
    events = parquet.metadata.num_rows
    if events <= more_than:
        return None

    def read(names: tuple[str, ...]) -> Iterator[Arrays]:
        return _parts(parquet, names, PART_EVENTS)

    allocs = sum(int(np.count_nonzero(part["op"] == ALLOC)) for part in read(("op",)))
    return Source(events, allocs, tuple(columns), header, read)


def _open(file: BinaryIO) -> tuple[pq.ParquetFile, dict[str, str], dict[str, Any]]:
    """An open file, the types of its columns by name, and what its metadata holds."""
    parquet = pq.ParquetFile(file, buffer_size=_PART_BYTES, pre_buffer=False)
    size = file.seek(0, os.SEEK_END)
    check_rows(parquet, size, max(_MOST_EVENTS, _MOST_EVENTS_PER_BYTE * size))
    header = _parse_header(parquet.metadata.metadata[METADATA_KEY])
    schema = parquet.schema_arrow
    for name, dtype in (COLUMNS | OPTIONAL_COLUMNS).items():
        if name in schema.names and str(schema.field(name).type) != dtype:
            raise TraceError(f"column '{name}' is {schema.field(name).type}, not {dtype}")
        if name in COLUMNS and name not in schema.names:
            raise TraceError(f"column '{name}' is missing")
    present = {n: d for n, d in (COLUMNS | OPTIONAL_COLUMNS).items() if n in schema.names}
    return parquet, present, header


def check_rows(parquet: pq.ParquetFile, size: int, most: int) -> None:
    """Raise TraceError if a file of this size claims to hold more than `most` rows."""
    events = parquet.metadata.num_rows
    if events > most:
        raise TraceError(f"claims to hold {events:,} events in {size:,} bytes")


def _parts(parquet: pq.ParquetFile, names: tuple[str, ...], events: int) -> Iterator[Arrays]:
    """Some columns of at most `events` events at a time."""
    rows_read, claimed = 0, parquet.metadata.num_rows
    for batch in parquet.iter_batches(events, columns=list(names), use_threads=False):
        part = {}
        for name in names:
            column = batch.column(name)
            if column.null_count:
                row = rows_read + int(pc.index(column.is_null(), True).as_py())
                raise TraceError(f"event {row}: column '{name}' is null")
            part[name] = column.to_numpy()
        rows_read += len(batch)
        if rows_read <= claimed:
            yield part
    if rows_read != claimed:
        raise TraceError(f"contains {rows_read} events, but its metadata says {claimed}")


def _parse_pools(stored: Any) -> tuple[PrivatePool, ...]:
    kinds = {name: type(value) for name, value in asdict(PrivatePool()).items()}
    for pool in stored if isinstance(stored, list) else [None]:
        if not isinstance(pool, dict) or {n: type(v) for n, v in pool.items()} != kinds:
            raise TraceError(f"a private pool in the trace's metadata is {pool!r}")
    return tuple(PrivatePool(**pool) for pool in stored)


def _parse_header(text: bytes) -> dict[str, Any]:
    """What the metadata holds, by the name of the field of a trace."""
    header = json.loads(text)
    if not isinstance(header, dict) or not isinstance(version := header.get("version"), int):
        raise TraceError("the trace's metadata has no format version")
    if version > FORMAT_VERSION:
        raise TraceError(
            f"trace format {version} is newer than the supported version {FORMAT_VERSION}"
        )
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
    origin = Provenance(**provenance)
    checked: dict[str, Any] = {"labels": tuple(labels), "provenance": origin}
    checked["coverage"] = coverage.imported(origin)
    if "pools" in header:
        checked["pools"] = _parse_pools(header["pools"])
    if "coverage" in header:
        checked["coverage"] = coverage.from_json(header["coverage"])
    if "layout" in header:
        try:
            checked["layout"] = _layout_from_json(header["layout"])
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise TraceError("the layout in the trace's metadata cannot be read") from error
    return checked


def layout_to_json(layout: Layout) -> dict[str, list[int]]:
    """The columns as lists of numbers, without pools if there is none."""
    names = (*_SEGMENT_COLUMNS, *_BLOCK_COLUMNS, *(_POOL_COLUMN if layout.pool.any() else ()))
    return {
        _NAMES_IN_FILES.get(name, name): getattr(layout, name).astype(np.uint64).tolist()
        for name in names
    }


def _layout_from_json(columns: Mapping[str, Any]) -> Layout:
    """The layout of such columns; raises ValueError, TypeError or KeyError for others."""
    arrays: dict[str, Any] = {
        name: np.array(columns[_NAMES_IN_FILES.get(name, name)], np.uint64).astype(dtype)
        for name, dtype in (_SEGMENT_COLUMNS | _BLOCK_COLUMNS).items()
    }
    pool = columns.get("pool", [0] * len(arrays["address"]))
    arrays["pool"] = np.array(pool, np.uint64).astype(_POOL_COLUMN["pool"])
    for names in ((*_SEGMENT_COLUMNS, "pool"), _BLOCK_COLUMNS):
        if len({arrays[name].shape for name in names}) > 1:
            raise ValueError("the columns of the layout differ in length")
    return Layout(**arrays)


def as_csv(file: BinaryIO) -> IO[bytes] | None:
    """The content of an open Parquet file as CSV; None if the file is a trace."""
    schema = pq.read_schema(file)
    texts = [field.name for field in schema if _is_text(field.type)]
    parquet = pq.ParquetFile(file, read_dictionary=texts, pre_buffer=False)
    if METADATA_KEY in (parquet.metadata.metadata or {}):
        file.seek(0)
        return None
    names = [field.name for field in schema if _is_text(field.type) or _is_plain(field.type)]
    if len(set(schema.names)) < len(schema) or not names:
        columns = short(", ".join(schema.names))
        raise TraceError(f"is Parquet without a table of events; its columns are {columns}")
    size = file.seek(0, os.SEEK_END)
    check_rows(parquet, size, max(_MOST_ROWS, _MOST_ROWS_PER_BYTE * size))
    most = most_expanded(size)
    copy = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  the caller closes it
    copy.write(",".join('"' + name.replace('"', '""') + '"' for name in names).encode() + b"\n")
    options = pacsv.WriteOptions(include_header=False)
    for part in parquet.iter_batches(_PART_ROWS, columns=names, use_threads=False):
        rows = pa.record_batch([_written(part.column(name), name) for name in names], names)
        pacsv.write_csv(rows, copy, options)
        if copy.tell() > most:
            raise TraceError(f"is Parquet that expands to more than {most:,} bytes of text")
    copy.seek(0)
    return copy


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_plain(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_temporal)
    return any(is_kind(kind) for is_kind in kinds)


def _written(column: pa.Array, name: str) -> pa.Array:
    """The column with the type that is written."""
    if not pa.types.is_dictionary(column.type):
        return column
    longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    if longest > _LONGEST:
        raise TraceError(f"column '{name}' has a value of {longest:,} bytes")
    return column.dictionary_decode()
