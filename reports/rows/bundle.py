# SPDX-License-Identifier: Apache-2.0
"""A results file: rows alone as JSON, the JSON lines of a sweep, or a bundle of rows and details.

A bundle is a zip archive of `rows.json`, as `results.write` writes it, and one Parquet file for
each table of `details.TABLES` that is not empty. `README.txt` in it says what the tables hold.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from allocbench.base.files import write_bytes
from allocbench.reports.rows import ResultError, results
from allocbench.reports.rows import details as detail_tables
from allocbench.reports.rows.details import TABLES, Details
from allocbench.reports.rows.results import SCHEMA

_ROWS = "rows.json"
_MOST_UNPACKED, _MOST_RATIO = 1 << 26, 200  # bytes of all members, and relative to the archive
_MOST_CELLS, _MOST_CELLS_PER_BYTE = 10_000_000, 100  # of a table, whose values may be repeated
_DAMAGED = (
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member: the same results give the same bytes


@dataclass(frozen=True)
class Bundle:
    """Checked result rows (`results.frame`) and their details, empty where there are none.

    `notes` tell the reader how the rows were read.
    """

    rows: pd.DataFrame
    details: Details = field(default_factory=detail_tables.none)
    notes: tuple[str, ...] = ()


def read(path: str | Path) -> Bundle:
    """The bundle of a file: a bundle, JSON rows, or a sweep; raises ResultError naming it."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ResultError(f"{path}: cannot read: {error.strerror or error}") from error
    if data.startswith(b"PK\x03\x04"):
        return _unpack(data, path)
    if data.startswith(BEGIN) or not data:
        return _swept(data, path)
    return Bundle(results.from_json(data, str(path)))


def read_all(paths: Sequence[str | Path]) -> Bundle:
    """Several files as one bundle; raises ResultError as `read` does, or when a run is there twice.

    If two files have details of the same workload, those of the first file are used.
    """
    bundles = [read(path) for path in paths]
    source_of: dict[tuple[str, ...], str | Path] = {}
    for path, bundle in zip(paths, bundles, strict=True):
        for key in bundle.rows[list(results.KEY)].itertuples(index=False, name=None):
            if key in source_of:
                run = f"{' on '.join(key[:2])}, {key[2]}"
                raise ResultError(f"{path}: {run} is already in {source_of[key]}")
            source_of[key] = path
    rows = results.frame(pd.concat([bundle.rows for bundle in bundles]))
    notes = tuple(note for bundle in bundles for note in bundle.notes)
    return Bundle(rows, detail_tables.join(bundle.details for bundle in bundles), notes)


def write(bundle: Bundle, path: str | Path) -> None:
    """Write a bundle, whole or not at all; "-" is standard output. Raises UserError."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)

        add("README.txt", _readme().encode())
        add(_ROWS, results.to_json(bundle.rows).encode())
        for name, frame in bundle.details.items():
            if not frame.empty:
                table = detail_tables.checked(name, frame, name)
                add(f"{name}.parquet", table.to_parquet(index=False, compression="zstd"))
    write_bytes(buffer.getvalue(), path)


def _swept(data: bytes, path: str | Path) -> Bundle:
    """The rows of a sweep that can be in the same table."""
    sweep = parse(data, str(path))
    kept = comparable(sweep)
    rows = results.frame([record["row"] for record in kept], str(path))
    older = len(sweep) - len(kept)
    what = "run is" if older == 1 else "runs are"
    note = f"{path}: {older:,} older {what} left out: repeated since, or of another trace"
    return Bundle(rows, notes=(note,) if older else ())


def _unpack(data: bytes, path: str | Path) -> Bundle:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            wanted = {_ROWS, *(f"{name}.parquet" for name in TABLES)} & {*archive.namelist()}
            unpacked = sum(archive.getinfo(name).file_size for name in wanted)
            if unpacked > max(_MOST_UNPACKED, _MOST_RATIO * len(data)):
                raise ResultError(
                    f"{path}: its {len(data):,} bytes would be unpacked to {unpacked:,} bytes"
                )
            members = {name: archive.read(name) for name in wanted}
    except ResultError:
        raise
    except _DAMAGED as error:
        raise ResultError(f"{path}: not a results bundle: {error}") from error
    if _ROWS not in members:
        raise ResultError(f"{path}: not a results bundle: it has no {_ROWS}")
    rows = results.from_json(members[_ROWS], str(path))
    tables = {}
    for name in TABLES:
        if table := members.get(f"{name}.parquet"):
            where = f"{path}: {name}.parquet"
            try:
                shape = pq.ParquetFile(io.BytesIO(table)).metadata
                cells = shape.num_rows * shape.num_columns
                if cells > max(_MOST_CELLS, _MOST_CELLS_PER_BYTE * len(table)):
                    raise ResultError(f"{where}: claims {cells:,} values in {len(table):,} bytes")
                frame = pd.read_parquet(io.BytesIO(table))
            except ResultError:
                raise
            except (pa.ArrowException, OSError, ValueError) as error:
                reason = str(error).partition("\n")[0]
                raise ResultError(f"{where}: not Parquet: {reason}") from error
            tables[name] = detail_tables.checked(name, frame, where)
    return Bundle(rows, detail_tables.join([tables]))


def _readme() -> str:
    """Describes the bundle for readers who open it with other tools."""
    lines = [
        "Results of allocbench, for `allocbench report` or any reader of JSON and Parquet.",
        "",
        f"{_ROWS}: one object for each run, one allocator on one workload on one device.",
    ]
    for name, spec in TABLES.items():
        lines += ["", f"{name}.parquet ({', '.join(spec.all)})", f"  {spec.meaning}"]
    return "\n".join(lines) + "\n"


Record: TypeAlias = dict[str, Any]
BEGIN = b'{"key"'
"""How every line begins."""


@dataclass(frozen=True)
class Key:
    """The identity of a run: its names, and hashes of the trace and the code."""

    workload: str
    trace: str
    allocator: str
    device: str
    code: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What results depend on, without the workload's name."""
        return self.trace, self.allocator, self.device, self.code


def key_of(record: Record) -> Key:
    """The key of a record."""
    return Key(**record["key"])


def parse(text: bytes, where: str) -> list[Record]:
    """The records of complete lines; raises ResultError, beginning with `where`, for others."""
    rows = []
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
        try:
            record = json.loads(line)
            names = vars(key_of(record)).values()
            if not isinstance(record["row"], dict) or not all(isinstance(x, str) for x in names):
                raise TypeError
            rows.append({name: record[name] for name in ("key", "row", "error")})
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ResultError(f"{where}: line {number}: not a sweep result") from error
    return rows


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """Records as a frame: the columns of `reports.rows`, then trace, code and error.

    If a run appears twice because it was retried, the later one counts.
    """
    latest = {key_of(record).identity: record for record in records}
    rows = [
        record["row"]
        | {name: record["key"][name] for name in ("trace", "code")}
        | {"error": record["error"]}
        for record in latest.values()
    ]
    return pd.DataFrame(rows, columns=[*SCHEMA, "trace", "code", "error"])


def comparable(records: Sequence[Record]) -> list[Record]:
    """The records that can be in one table, by workload, device and allocator.

    A workload's name may refer to several traces, and several versions may have made the same run:
    only the last trace of each workload and the last record of each run are used.
    """
    traces = {record["key"]["workload"]: record["key"]["trace"] for record in records}
    kept: dict[tuple[str, str, str], Record] = {}
    for record in records:
        key = key_of(record)
        if key.trace == traces[key.workload]:
            kept[key.workload, key.device, key.allocator] = record
    return [kept[run] for run in sorted(kept)]  # the file has them in the order in which they ended
