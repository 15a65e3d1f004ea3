# SPDX-License-Identifier: Apache-2.0
"""workloads.streaming: a trace in parts is the trace as a whole, wherever the parts begin."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.workloads import (
    ALLOC,
    FREE,
    MARK,
    TRIM,
    StreamedTrace,
    Trace,
    TraceError,
    features,
    parquet,
    read,
    read_large,
    write,
)
from allocbench.workloads._native import BlockNumbers
from tests.traces import (
    GOOD,
    Event,
    assert_same,
    held_at_start,
    in_parts,
    make,
    message_of,
    valid_traces,
)


def live_peak(trace: Trace) -> int:
    change = (trace.op == ALLOC).astype(int) - (trace.op == FREE)
    return int(np.cumsum(change).max(initial=0))


@given(valid_traces(), st.integers(1, 70))
def test_the_parts_together_are_the_trace(trace: Trace, events: int) -> None:
    streamed = in_parts(trace, events)
    assert (len(streamed), streamed.allocs, streamed.name) == (len(trace), trace.allocs, trace.name)
    assert streamed.step_label == trace.step_label
    assert streamed.requested == sum(
        trace.size[n : n + events].sum() for n in range(0, len(trace), events)
    )
    for _ in range(2):
        parts = list(streamed.parts())
        assert [len(part.op) for part in parts[:-1]] == [events] * (len(parts) - 1)
        for name, column in (("op", "op"), ("size", "size"), ("stream", "stream"), ("block", "id")):
            together = np.concatenate([getattr(part, column) for part in parts])
            np.testing.assert_array_equal(together, getattr(trace, name), strict=True)


@given(valid_traces(), st.integers(1, 70))
def test_live_blocks_have_small_numbers_of_their_own(trace: Trace, events: int) -> None:
    live: dict[int, int] = {}  # the number of each id
    most = live_peak(trace)
    for part in in_parts(trace, events).parts():
        for op, number, block in zip(part.op, part.block, part.id, strict=True):
            if op == ALLOC:
                assert number < most
                assert number not in live.values()
                live[block] = number
            elif op == FREE:
                assert live.pop(block) == number
            else:
                assert number == block


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_many_blocks_with_any_ids(seed: int) -> None:
    random = np.random.default_rng(seed)
    ids = random.choice(2**32, 3000, replace=False).astype(np.uint32)
    ids[:2] = 0, 2**32 - 1
    events = random.choice(ids, 40_000)  # allocates the block or, if it is live, frees it
    live: dict[int, int] = {}
    most, numbers = 0, BlockNumbers()
    for block in np.split(events, 40):
        op = np.empty(len(block), np.uint8)
        alive = set(live)
        for n, name in enumerate(block.tolist()):
            op[n] = FREE if name in alive else ALLOC
            alive ^= {name}
        found, in_turn = numbers.number(op, block)
        assert in_turn == len(block)
        for kind, name, number in zip(op, block.tolist(), found.tolist(), strict=True):
            if kind == FREE:
                assert live.pop(name) == number
            else:
                assert number not in live.values()
                live[name] = number
            most = max(most, len(live))
            assert number < most
    wrong = np.array([min(live)], np.uint32)
    assert numbers.number(np.array([ALLOC], np.uint8), wrong)[1] == 0


@given(valid_traces(), st.integers(1, 70))
def test_features_do_not_depend_on_the_parts(trace: Trace, events: int) -> None:
    assert in_parts(trace, events).features == features(trace)


def parquet_of(trace: Trace, path: Path, row_group: int) -> Path:
    """A file of a trace that may be invalid, with row groups of so many events."""
    header = b'{"version": 1, "labels": ["step"], "provenance": {}}'
    table = pa.table(trace.columns()).replace_schema_metadata({b"allocbench.trace": header})
    pq.write_table(table, path, row_group_size=row_group)
    return path


EVENTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=40
)


@given(EVENTS, st.integers(1, 20), st.integers(1, 20))
def test_a_broken_rule_is_reported_as_for_the_whole_trace(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], row_group: int, part: int
) -> None:
    trace = make([(op, block, size if op == ALLOC else 0) for op, block, size in events])
    path = parquet_of(trace, tmp_path_factory.getbasetemp() / "t.parquet", row_group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "PART_EVENTS", part)
        assert told(path, most_in_memory=0) == told(path)


def told(path: Path, **options: int) -> str:
    """The error of reading a file, or "" if it has none."""
    try:
        read_large(path, **options) if options else read(path)
    except TraceError as error:
        return str(error)
    return ""


def test_a_broken_event_in_a_later_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PART_EVENTS", 2)
    path = parquet_of(make([*GOOD, (FREE, 1, 0)]), tmp_path / "t.parquet", 3)
    message = message_of(lambda: read_large(path, most_in_memory=3))
    assert message == f"{path}: event 5: free of block 1, which is not live"


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz"])
@pytest.mark.parametrize("most", [4, 5])
def test_only_larger_files_are_read_in_parts(tmp_path: Path, name: str, most: int) -> None:
    trace, path = make(GOOD), tmp_path / name
    write(trace, tmp_path / name.removesuffix(".gz"))
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    found = read_large(path, most_in_memory=most)
    assert isinstance(found, StreamedTrace) == (most < len(trace))
    whole = read(path)
    if isinstance(found, StreamedTrace):
        assert found.name == whole.name
        assert found.provenance == whole.provenance
        assert np.concatenate([part.id for part in found.parts()]).tolist() == whole.block.tolist()
        found = found.first_events(len(trace))
    assert_same(found, whole)


@pytest.mark.parametrize(
    "text",
    [
        "op,id,size\na,0,100\nf,0,100\na,1,7\n",  # a free with a size
        "op,id,size\na,x,100\nf,x,\na,y,7\n",
        "op,id,size\na,0,100\nf,0,\na,7,7\n",  # an id that is not below the number of allocs
        "op;id;size\na;0;100\nf;0;\na;1;7\n",
    ],
)
def test_csv_in_another_form_is_read_as_a_whole(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    found = read_large(path, most_in_memory=1)
    assert isinstance(found, Trace)
    assert_same(found, read(path))


def test_the_error_of_a_large_csv_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("op,id,size\na,0,100\nf,0,\nf,0,\n")
    message = message_of(lambda: read_large(path, most_in_memory=1))
    assert message == message_of(lambda: read(path))
    assert "line 4" in message


def test_a_file_that_changes_between_two_readings(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("op,id,size\na,0,100\nf,0,\na,1,7\nf,1,\n")
    streamed = read_large(path, most_in_memory=1)
    assert isinstance(streamed, StreamedTrace)
    path.write_text("op,id,size\na,0,100\nf,0,\na,1,7\nf,0,\n")
    message = message_of(lambda: list(streamed.parts()))
    assert message == f"{path}: event 3: the file has changed"


def test_the_first_part_has_the_blocks_of_the_layout() -> None:
    held, layout = held_at_start()
    trace = make([*held, (FREE, 1, 0), (FREE, 0, 0)], layout=layout)
    sizes = [len(part.op) for part in in_parts(trace, 1).parts()]
    assert sizes == [2, 1, 1]


def test_features_of_marks_and_trims_alone() -> None:
    trace = make([(MARK, 0, 0), (TRIM, 0, 0), (MARK, 0, 0)], labels=("step",))
    assert in_parts(trace, 1).features == features(trace)
