# SPDX-License-Identifier: Apache-2.0
"""Parquet that another program wrote, such as pandas, with the columns of one of the CSV formats.

It is turned into CSV, which the reader of that format reads. Columns with lists or structures are
left out. A name, number or time may have any type, and null is an empty field.
"""

from __future__ import annotations

import os
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from allocbench.workloads.containers import IN_MEMORY, most_expanded
from allocbench.workloads.csv_dialect import short
from allocbench.workloads.parquet import METADATA_KEY, check_rows
from allocbench.workloads.trace import TraceError

_PART_ROWS = 1 << 10
_MOST_ROWS = 1_000_000
_MOST_ROWS_PER_BYTE = 10
"""A file may hold that many rows, or that many for each of its bytes, whichever is more."""
_LONGEST = 1 << 16  # characters of a value


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
