# SPDX-License-Identifier: Apache-2.0
"""workloads.block_lifetimes: blocks of a trace or of a CSV, and every kind of error in the CSV."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from allocbench.workloads import (
    ALLOC,
    FREE,
    Trace,
    lifetimes,
    read,
    read_lifetimes,
    read_plannable,
    write_plan,
)
from tests.traces import message_of, valid_traces

EXAMPLE = Path(__file__).parents[1] / "data/minimalloc/input.12.csv"
HEADER = "id,lower,upper,size\n"


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


@pytest.mark.parametrize(
    "text",
    [
        "size,upper,lower,id\n4,3,0,b1\n5,9,3,b2\n",
        "buffer,begin,upper,size\nb1,0,3,4\nb2,3,9,5\n",
        "buffer_id,start,end,size\nb1,0,2,4\nb2,3,8,5\n",
        "id,lower,end,size\nb1,0,1,4\nb2,3,8,5\n",
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
    first_end = 2 if "b1,0,1" in text else 3  # the instant after the last one
    assert (blocks.first.tolist(), blocks.last.tolist()) == ([0, 3], [first_end, 9])
    assert read(path).max_load == 5


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
