# SPDX-License-Identifier: Apache-2.0
"""workloads.block_lifetimes: blocks of a trace or of a CSV, and every kind of error in the CSV."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from allocbench.workloads import (
    ALLOC,
    FREE,
    MARK,
    Trace,
    lifetimes,
    read,
    read_lifetimes,
    read_plannable,
    write_plan,
)
from tests.traces import make, message_of, valid_traces

EXAMPLE = Path(__file__).parents[1] / "data/minimalloc/input.12.csv"
HEADER = "id,lower,upper,size\n"


def test_the_blocks_of_a_trace_are_its_allocs() -> None:
    events = [(ALLOC, 0, 8), (MARK, 0, 0), (ALLOC, 1, 9), (FREE, 0, 0), (ALLOC, 0, 7), (FREE, 0, 0)]
    blocks = lifetimes(make(events, labels=("step",)))
    assert blocks.ids == ["0", "1", "2"]
    assert blocks.size.tolist() == [8, 9, 7]
    assert blocks.first.tolist() == [0, 2, 4]
    assert blocks.last.tolist() == [3, 6, 5]


@given(valid_traces())
def test_blocks_live_from_their_alloc_to_their_free(trace: Trace) -> None:
    blocks = lifetimes(trace)
    stated = []
    for event in np.flatnonzero(trace.op == ALLOC).tolist():
        later = range(event + 1, len(trace))
        frees = (e for e in later if trace.op[e] == FREE and trace.block[e] == trace.block[event])
        stated.append((int(trace.size[event]), event, next(frees, len(trace))))
    columns = (blocks.size.tolist(), blocks.first.tolist(), blocks.last.tolist())
    assert list(zip(*columns, strict=True)) == stated
    assert len(blocks) == len(blocks.ids) == trace.allocs


def holds_lifetimes(path: Path) -> bool:
    found = read_plannable(path)
    return isinstance(found, tuple) and found[1]


def test_the_example_of_minimalloc() -> None:
    assert holds_lifetimes(EXAMPLE)
    blocks = read_lifetimes(EXAMPLE)
    assert blocks.ids == ("b1", "b2", "b3", "b4", "b5")
    assert blocks.first.tolist() == [0, 3, 0, 9, 0]
    assert blocks.last.tolist() == [3, 9, 9, 21, 21]
    assert blocks.size.tolist() == [4] * 5


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    path = tmp_path / "blocks.csv"
    path.write_bytes(EXAMPLE.read_bytes().replace(b"\n", b"\r\n"))
    assert holds_lifetimes(path)
    assert len(read_lifetimes(path)) == 5


@pytest.mark.parametrize(
    "text",
    [
        "size,upper,lower,id\n4,3,0,b1\n5,9,3,b2\n",
        "buffer,begin,upper,size\nb1,0,3,4\nb2,3,9,5\n",
        "buffer_id,start,end,size\nb1,0,2,4\nb2,3,8,5\n",
        "id,lower,upper,size,offset,step\nb1,0,3,4,0,0\nb2,3,9,5,0,1\n",
        "id,lower,upper,size,alignment,gaps,offset\nb1,0,3,4,1,,77\nb2,3,9,5,,,0\n",
    ],
)
def test_columns_as_minimalloc_takes_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "blocks"
    path.write_text(text)
    assert holds_lifetimes(path)
    blocks = read_lifetimes(path)
    assert (blocks.ids, blocks.size.tolist()) == (("b1", "b2"), [4, 5])
    assert (blocks.first.tolist(), blocks.last.tolist()) == ([0, 3], [3, 9])
    assert read(path).max_load == 5


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffID;Lower;UPPER;Size\nb1;0;3;4,0\nb2;3;9;5\n",
        "id\tlower\tupper\tsize\tcolor\nb1\t0\t3\t4\tred\n\nb2\t3\t9\t5\n",
        '"id", lower, upper, "size"\n"b1", 0, 3.0, "4"\nb2, 3, 9, 5e0\n,,,\n',
        "size|end|start|buffer\n4|2|0|b1\n5|8|3|b2\n",
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_lifetimes_as_people_write_them(tmp_path: Path, text: str, zipped: bool) -> None:
    path = tmp_path / "blocks"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    assert holds_lifetimes(path)
    blocks = read_lifetimes(path)
    assert (blocks.ids, blocks.size.tolist()) == (("b1", "b2"), [4, 5])
    assert (blocks.first.tolist(), blocks.last.tolist()) == ([0, 3], [3, 9])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,lower,end,size\na,3,2,1\n", "end 2 is not above lower 3; expected ID,FROM,TO,SIZE"),
        ("id,lower,end,size\na,3,3,1\na,4,4,1\n", "line 3: 'a,4,4,1': line 2 already has the id"),
        ("id,lower,upper,size,alignment\na,1,2,1,64\n", "alignment '64' is not supported"),
        ("id,lower,upper,size,gaps\na,1,9,1,3-4\n", "gaps '3-4' is not supported"),
        ("id,id,lower,upper,size\na,a,1,9,1\n", "line 1: no header"),
        ("id,lower,upper,end,size\na,1,9,1,1\n", "line 1: no header"),
    ],
)
def test_invalid_columns(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "blocks"
    path.write_text(text)
    assert told in message_of(lambda: read_lifetimes(path))


def test_a_plan_is_the_csv_with_offsets() -> None:
    sink = io.BytesIO()
    write_plan(read_lifetimes(EXAMPLE), np.array([8, 8, 4, 4, 0], np.uint64), sink)
    lines = sink.getvalue().decode().splitlines()
    assert lines[:2] == ["id,lower,upper,size,offset", "b1,0,3,4,8"]
    assert [line.rpartition(",")[0] for line in lines] == EXAMPLE.read_text().splitlines()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("op,id,size\n", "holds no events"),
        ("id,lower,upper\n", "its format is not recognized: line 1 is 'id,lower,upper'"),
    ],
)
def test_other_files_hold_no_lifetimes(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    assert told in message_of(lambda: read_plannable(path))
    missing = tmp_path / "missing.csv"
    assert message_of(lambda: read_plannable(missing)) == f"{missing}: No such file or directory"
    assert message_of(lambda: read_lifetimes(path)) == f"{path}: line 1: no header '{HEADER[:-1]}'"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "holds no blocks"),
        ("a,0,1\n", "line 2: 'a,0,1': size '' is not a whole number from 1"),
        ("a,0,1,1,1\n", "line 2: 'a,0,1,1,1': 5 fields for 4 columns"),
        (",0,1,1\n", "line 2: ',0,1,1': the id is missing; expected ID,FROM,TO,SIZE"),
        ('a,0,1,"1\n', "line 2: unexpected end of data"),
        ("a,0,1,1\nb,2,2,1\n", "upper 2 is not above lower 2"),
        ("a,0,1,1\na,1,2,1\n", "line 3: 'a,1,2,1': line 2 already has the id 'a'"),
        ("a,0,1,0\n", f"size '0' is not a whole number from 1 to {2**63 - 1}"),
        ("a,-1,1,1\n", f"lower '-1' is not a whole number from 0 to {2**32 - 2}"),
        ("a,0,1.5,1\n", "upper '1.5' is not"),
        (f"a,0,{2**32 - 1},1\n", f"upper '{2**32 - 1}' is not"),
        ("a,0,\u0663,1\n", "upper '\u0663' is not"),
        ("\ud800,0,1,1\n", "utf-8"),
    ],
)
def test_a_broken_row_is_an_error_of_one_line(tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "blocks.csv"
    path.write_bytes((HEADER + rows).encode("utf-8", "surrogatepass"))
    found = message_of(lambda: read_lifetimes(path))
    assert found.startswith(f"{path}: ")
    assert message in found
