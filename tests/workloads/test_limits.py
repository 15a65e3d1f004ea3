# SPDX-License-Identifier: Apache-2.0
"""Small files that would take much memory, disk space or stack are refused in one line."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from allocbench.workloads import Trace, TraceError, containers, files, input_files, parquet, read
from tests.traces import GOOD, make, message_of

DEEP = "[" * 100_000
CSV = b"op,id,size\n" + b"".join(b"a,0,%d\nf,0,\n" % n**3 for n in range(1, 10_001))


def deep_parquet() -> bytes:
    table = pa.table(make(GOOD).columns()).replace_schema_metadata({b"allocbench.trace": DEEP})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@pytest.mark.parametrize(
    "content",
    [
        deep_parquet(),
        f'{{"tensors": {DEEP}'.encode(),
        f'{{"schemaVersion": 1, "traceEvents": [{{"name": "[memory]", "args": {DEEP}'.encode(),
        f'{{"timestamp": 0, "input_length": 1, "output_length": 5, "hash_ids": {DEEP}\n'.encode(),
    ],
    ids=["Parquet", "graph", "profile", "request log"],
)
def test_deep_nesting(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "deep"
    path.write_bytes(content)
    message_of(lambda: files.read_plannable(path))


def _zip(content: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", b"")
        archive.writestr("folder/t.csv", content)
    return sink.getvalue()


def _tar(content: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        member = tarfile.TarInfo("folder/t.csv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "a zip archive": _zip,
    "a tar archive": _tar,
    "tar.gz": lambda content: gzip.compress(_tar(content)),
}


@pytest.mark.parametrize("kind", PACKED)
def test_packed_files(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "outer.csv.gz"
    packed = PACKED[kind](CSV)
    path.write_bytes(packed)
    trace = read(path)
    name = "outer" if kind in ("gzip", "bzip2", "xz") else "t"  # archives have names of their own
    assert (len(trace), trace.provenance.name) == (20_000, name)
    for damaged in (packed[: len(packed) // 2], packed[:-9] + bytes(9), packed[:40]):
        path.write_bytes(damaged)
        with suppress(TraceError):
            assert len(read(path)) == 20_000  # the end of a tar archive is only padding
    monkeypatch.setattr(containers, "_MOST_EXPANDED", 1 << 10)
    monkeypatch.setattr(containers, "_MOST_RATIO", 0)
    path.write_bytes(packed)
    assert "expands to more than 1,024 bytes" in message_of(lambda: read(path))


def test_a_file_that_is_packed_too_often(tmp_path: Path) -> None:
    content = CSV
    for _ in range(4):
        content = gzip.compress(content)
    (tmp_path / "t").write_bytes(content)
    assert "its format is not recognized" in message_of(lambda: read(tmp_path / "t"))


def test_gzip_that_expands_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_MOST_EXPANDED", 1 << 10)
    monkeypatch.setattr(input_files, "_PART", 1 << 10)
    path = tmp_path / "t.csv.gz"
    packed = gzip.compress(CSV)
    path.write_bytes(packed)
    assert len(CSV) < 200 * len(packed)
    assert len(read(path)) == 20_000
    monkeypatch.setattr(containers, "_MOST_RATIO", 2)
    assert message_of(lambda: read(path)) == (
        f"{path}: is gzip of {len(packed):,} bytes that expands to more than {2 * len(packed):,}"
        " bytes; if that is intended, expand it first"
    )


def test_parquet_that_expands_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"op": ["a"] * 9000, "id": ["x" * 99] * 9000, "size": [1] * 9000}), path
    )
    assert "line 3: " in message_of(lambda: read(path))
    monkeypatch.setattr(containers, "_MOST_EXPANDED", 1 << 10)
    most = 200 * path.stat().st_size
    assert most < 9000 * 99
    assert message_of(lambda: read(path)) == (
        f"{path}: is Parquet that expands to more than {most:,} bytes of text"
    )


def test_parquet_with_many_rows_of_nothing(tmp_path: Path) -> None:
    """Nulls take next to no space in a file."""
    path = tmp_path / "t.parquet"
    rows = 8_000_000
    nothing = pa.nulls(rows, pa.int8())
    table = pa.table({"op": nothing, "id": nothing, "size": nothing})
    pq.write_table(table, path, compression="zstd")
    size = path.stat().st_size
    assert message_of(lambda: read(path)) == (
        f"{path}: claims to hold {rows:,} events in {size:,} bytes"
    )


def test_parquet_that_claims_many_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal values take next to no space in a file."""
    path = tmp_path / "t.parquet"
    events = 1_000_000
    columns = (np.zeros(events, kind) for kind in (np.uint8, np.uint32, np.uint64, np.uint16))
    names = ("op", "block", "size", "stream")
    table = pa.table(dict(zip(names, columns, strict=True)))
    header = {"version": 1, "labels": [], "provenance": {}}
    table = table.replace_schema_metadata({b"allocbench.trace": json.dumps(header)})
    pq.write_table(table, path, compression="zstd")
    size = path.stat().st_size
    assert "event 0: " in message_of(lambda: read(path))
    monkeypatch.setattr(parquet, "_MOST_EVENTS", 1000)
    monkeypatch.setattr(parquet, "_MOST_EVENTS_PER_BYTE", 10)
    assert message_of(lambda: read(path)) == (
        f"{path}: claims to hold {events:,} events in {size:,} bytes"
    )


def test_the_limits_admit_every_trace_that_is_written(tmp_path: Path) -> None:
    """One alloc and one free of the same block, over and over, is what compresses best."""
    path = tmp_path / "t.parquet"
    op = np.tile(np.array([0, 1], np.uint8), 500_000)
    zeros = np.zeros(len(op), np.uint32)
    trace = Trace(op, zeros, (1 - op).astype(np.uint64), zeros.astype(np.uint16))
    files.write(trace, path)
    assert len(read(path)) == len(op)
