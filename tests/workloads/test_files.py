# SPDX-License-Identifier: Apache-2.0
"""Files contain the trace that was written, or one line says what is wrong with them."""

import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Provenance, Trace, read, read_large, write
from allocbench.workloads.formats import FORMATS
from allocbench.workloads.parquet import FORMAT_VERSION
from allocbench.workloads.streaming import AnyTrace
from tests.traces import GOOD, assert_same, make, message_of, valid_traces
from tests.workloads.peak_memory import events_and_growth

GOOD_CSV = "op,id,size\na,0,100\na,1,7\nf,0,\na,0,50\nf,1,\n"
KEY = b"allocbench.trace"

# --- files that are right


@given(trace=valid_traces())
def test_parquet_gives_back_everything(
    trace: Trace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "t.parquet"
    write(trace, path)
    again = read(path)
    assert_same(trace, again)
    assert again.provenance == trace.provenance


@pytest.mark.parametrize("reader", [read, partial(read_large, most_in_memory=0)])
def test_sizes_that_add_up_to_2_to_the_63_are_refused(
    reader: Callable[[Path], AnyTrace], tmp_path: Path
) -> None:
    path, half = tmp_path / "t.parquet", 2**62
    write(make([(ALLOC, 0, half), (FREE, 0, 0), (ALLOC, 1, half - 1)]), path)
    assert reader(path).requested == 2**63 - 1
    write(make([(ALLOC, 0, half), (FREE, 0, 0), (ALLOC, 1, half)]), path)
    assert message_of(lambda: reader(path)) == (
        f"{path}: its allocs add up to 9,223,372,036,854,775,808 bytes, more than "
        "9,223,372,036,854,775,807"
    )


@given(trace=valid_traces(plain=True))
def test_csv_gives_back_allocs_and_frees(
    trace: Trace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    write(trace, path)
    assert_same(trace, read(path))


def test_csv_is_as_documented_and_leaves_out_marks_and_trims(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write(make([(MARK, 0, 0), *GOOD, (TRIM, 0, 0)], labels=("step",)), path)
    assert path.read_text() == GOOD_CSV
    again = read(path)
    assert_same(again, make(GOOD))
    assert again.provenance == Provenance(name="t", kind="imported", source="t.csv")


def test_the_format_is_recognized_by_content(tmp_path: Path) -> None:
    write(make(GOOD), tmp_path / "t.parquet")
    parquet = (tmp_path / "t.parquet").rename(tmp_path / "really-parquet.csv")
    csv = tmp_path / "really-csv.parquet"
    csv.write_text(GOOD_CSV)
    assert_same(read(parquet), read(csv))


def test_an_option_that_the_format_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(GOOD_CSV)
    told = message_of(lambda: read(path, device=1))
    assert told == f"{path}: is CSV op,id,size, which has no option 'device'; it has none"


OP, ID = ["a", "a", "f", "a", "f"], [0, 1, 0, 0, 1]
SIZE = [100, 7, None, 50, None]
TABLES: dict[str, pa.Table] = {
    "plain": pa.table({"op": OP, "id": ID, "size": SIZE}),
    "other order and columns": pa.table({"n": [[1]] * 5, "size": SIZE, "id": ID, "Op": OP}),
    "float sizes": pa.table({"op": OP, "id": ID, "size": pa.array(SIZE, pa.float64())}),
    "large text": pa.table(
        {
            "op": pa.array(OP, pa.large_string()),
            "id": pa.array([f"0x7f{n:x}, block" for n in ID], pa.large_string()),
            "size": pa.array(SIZE, pa.uint32()),
        }
    ),
    "categories": pa.table(
        {
            "op": pa.array(OP).dictionary_encode(),
            "id": pa.array(map(str, ID), pa.large_string()).dictionary_encode(),
            "size": SIZE,
        }
    ),
    "lifetimes": pa.table(
        {"id": ["x", "y", "z"], "lower": [0, 1, 3], "upper": [2, 4, 5], "size": [100, 7, 50]}
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_as_parquet_is_read_as_csv(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(TABLES[name], path)
    trace = read(path)
    sizes = [100, 7, 0, 50, 0, 0] if name == "lifetimes" else [100, 7, 0, 50, 0]
    assert trace.size.tolist() == sizes
    assert trace.op.tolist() == [ALLOC, ALLOC, FREE, ALLOC, FREE, FREE][: len(sizes)]


def test_a_log_of_requests_as_parquet_takes_options(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    times = pa.array([1_700_000_000_123_456, 1_700_000_001_000_000], pa.timestamp("us", "UTC"))
    columns = {"TIMESTAMP": times, "ContextTokens": [5, 9], "GeneratedTokens": [3, 2]}
    pq.write_table(pa.table(columns), path)
    assert read(path, model="qwen2.5-7b").provenance.kind == "serving"


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            pa.table({"op": ["a", "f", "f"], "id": [0, 0, 0], "size": [9, 0, 0]}),
            "line 4: 'f,0,0': ",
        ),
        (pa.table({"x": [[1], [2]]}), "without a table of events; its columns are x"),
        (
            pa.Table.from_arrays([pa.array(["a"]), pa.array(["f"])], ["op", "op"]),
            "without a table of events; its columns are op, op",
        ),
        (pa.table({"op": ["a" * 70_000], "id": [1], "size": [1]}), "'op' has a value of 70,000 by"),
        (pa.table({"x": [1]}), "so it is read as CSV: its format is not recognized: line 1 is"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, table: pa.Table, told: str) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    assert told in message_of(lambda: read(path))


def test_a_file_of_many_parts(tmp_path: Path) -> None:
    """More rows than are read at a time, so that lines and batches cross the boundaries."""
    n = 150_000
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 2**40, n).tolist()
    pairs = [[(ALLOC, block, size), (FREE, block, 0)] for block, size in enumerate(sizes)]
    trace = make(chain.from_iterable(pairs))
    for name in ("t.csv", "t.parquet"):
        write(trace, tmp_path / name)
        assert_same(trace, read(tmp_path / name))


# --- files that are wrong


def parquet_bytes(table: pa.Table | None = None, header: Any = None) -> bytes:
    """A Parquet file of columns and metadata of our choice."""
    table = pa.table(make(GOOD).columns()) if table is None else table
    sink = pa.BufferOutputStream()
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    metadata = {} if header is None else {KEY: text}
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


HEADER = {"version": FORMAT_VERSION, "labels": [], "provenance": {}}
COLUMNS = make(GOOD).columns()
NULL = pa.array([100, 7, None, 50, 0], pa.uint64())
KNOWN = "; ".join(one.name for one in FORMATS)
UNKNOWN = f"its format is not recognized; known formats: {KNOWN}"
WRONG_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "rubbish": (bytes(range(256)) * 64, UNKNOWN),
    "other header": (
        b"operation,id,size\na,0,1\n",
        "its format is not recognized: line 1 is 'operation,id,size'; expected the columns"
        f" op,id,size for a trace as CSV. Known formats: {KNOWN}; the text of an out-of-memory"
        " error, of which it has none that is known",
    ),
    "UTF-16": ("op,id,size\na,0,1\n".encode("utf-16"), "is text in UTF-16; save it as UTF-8"),
    "graph": (
        b'{"tensors": [], "operators": []}',
        "is the graph of a model, not a trace; `allocbench plan` reads it",
    ),
    "no events": (b"op,id,size\n", "holds no events"),
    "cut Parquet": (
        parquet_bytes(header=HEADER)[:-40],
        "Parquet magic bytes not found in footer. "
        "Either the file is corrupted or this is not a parquet file.",
    ),
    "other Parquet": (
        parquet_bytes(),
        "is Parquet without 'allocbench.trace' metadata, so it is read as CSV: line 1: "
        '\'"op","block","size","stream"\': the header lacks the column id; expected the'
        " columns op, id and size",
    ),
    "newer": (
        parquet_bytes(header=HEADER | {"version": FORMAT_VERSION + 1}),
        f"trace format {FORMAT_VERSION + 1} is newer than the supported version {FORMAT_VERSION}",
    ),
    "no version": (parquet_bytes(header=[]), "the trace's metadata has no format version"),
    "no labels": (
        parquet_bytes(header=HEADER | {"labels": [1]}),
        "the trace's metadata has no list of labels",
    ),
    "no provenance": (
        parquet_bytes(header=HEADER | {"provenance": 1}),
        "the trace's metadata has no provenance",
    ),
    "unknown provenance": (
        parquet_bytes(header=HEADER | {"provenance": {"color": "red"}}),
        "unknown provenance 'color'",
    ),
    "wrong provenance": (
        parquet_bytes(header=HEADER | {"provenance": {"name": 3}}),
        "provenance 'name' is 3",
    ),
    **{
        f"wrong layout {layout}": (
            parquet_bytes(header=HEADER | {"layout": layout}),
            "the layout in the trace's metadata cannot be read",
        )
        for layout in (5, {}, {"address": ["x"]}, {"address": [-1]}, {"address": [2**64]})
    },
    "not JSON": (
        parquet_bytes(header=b"{"),
        "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "missing column": (
        parquet_bytes(pa.table(COLUMNS).drop_columns("size"), HEADER),
        "column 'size' is missing",
    ),
    "other type": (
        parquet_bytes(pa.table(COLUMNS | {"size": COLUMNS["size"].astype(np.int64)}), HEADER),
        "column 'size' is int64, not uint64",
    ),
    "null": (
        parquet_bytes(pa.table(COLUMNS | {"size": NULL}), HEADER),
        "event 2: column 'size' is null",
    ),
    "broken rule": (
        parquet_bytes(pa.table(make([*GOOD, (FREE, 1, 0)]).columns()), HEADER),
        "event 5: free of block 1, which is not live",
    ),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    path = tmp_path / "t"
    content, message = WRONG_FILES[case]
    path.write_bytes(content)
    assert message_of(lambda: read(path)) == f"{path}: {message}"


def test_places_that_are_no_file(tmp_path: Path) -> None:
    missing = tmp_path / "missing.csv"
    assert message_of(lambda: read(missing)) == f"{missing}: No such file or directory"
    assert message_of(lambda: read(tmp_path)) == f"{tmp_path}: is a folder, not a file"


# --- writing


def test_a_trace_that_cannot_be_written_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "t.csv"
    assert message_of(lambda: write(make(GOOD), nowhere)).startswith(f"{nowhere}: No such file")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert message_of(lambda: write(make(GOOD), folder)) == f"{folder}: Is a directory"
    other = tmp_path / "t.json"
    assert "the extension must be .parquet or .csv" in message_of(lambda: write(make(GOOD), other))
    assert list(tmp_path.iterdir()) == [folder]


def test_a_failed_write_keeps_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("precious")
    dead_free = [(ALLOC, 0, 1), (FREE, 0, 0), (FREE, 0, 0)]
    two_streams = make(GOOD, stream=np.array([0, 0, 1, 0, 0], np.uint16))
    assert "CSV holds one stream" in message_of(lambda: write(two_streams, path))
    assert "event 2: free of block 0" in message_of(lambda: write(make(dead_free), path))
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    write(make(GOOD), path)
    assert path.read_text() == GOOD_CSV


# --- memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("extension", ["csv", "parquet"])
def test_reading_and_validating_takes_at_most_28_bytes_an_event(
    tmp_path: Path, extension: str
) -> None:
    """Peak memory, the 15 bytes an event of the trace itself included."""
    n, lag = 1_500_000, 5_000
    op = np.concatenate([np.zeros(lag), np.tile([ALLOC, FREE], n - lag), np.ones(lag)])
    events = np.zeros((2 * n, 3), np.uint64)
    events[:, 0] = op
    events[op == ALLOC, 1] = events[op == FREE, 1] = np.arange(n)
    events[op == ALLOC, 2] = np.random.default_rng(0).integers(1, 2**33, n)
    small, large = tmp_path / f"small.{extension}", tmp_path / f"large.{extension}"
    write(make(GOOD), small)
    write(
        Trace(
            op=events[:, 0].astype(np.uint8),
            block=events[:, 1].astype(np.uint32),
            size=events[:, 2].copy(),
            stream=np.zeros(2 * n, np.uint16),
        ),
        large,
    )
    count, grown = events_and_growth(small, large)
    assert count == 2 * n
    assert 13 <= grown / count <= 28
