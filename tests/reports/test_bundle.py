# SPDX-License-Identifier: Apache-2.0
"""Results files: they are read back and joined, and errors name bad ones."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allocbench.reports.rows import ResultError, bundle, details, results
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import TABLES
from tests.result_rows import GIB, HOSTILE, memory, row, with_memory


def full(workload: str = "train", allocator: str = "a", device: str = "sim:80GiB") -> Bundle:
    """A bundle with two rows of made-up numbers in every table."""
    values = {"text": ["", HOSTILE], "whole": [1, 2**40], "number": [0.5, float("nan")]}
    kinds = {**values, "flag": [True, False]}
    key = {"workload": workload, "device": device, "allocator": allocator}
    made = {
        name: details.table(
            name,
            {column: kinds[kind] for column, kind in spec.columns.items()},
            **{column: key[column] for column in spec.key},
        )
        for name, spec in TABLES.items()
    }
    return Bundle(results.frame([row(allocator, workload, device=device)]), made)


def assert_same(left: Bundle, right: Bundle) -> None:
    pd.testing.assert_frame_equal(left.rows, right.rows)
    assert left.details.keys() == right.details.keys() == TABLES.keys()
    for name, frame in left.details.items():
        pd.testing.assert_frame_equal(frame, right.details[name], check_dtype=True)


def test_written_results_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results.zip"
    bundle.write(full(), path)
    assert_same(bundle.read(path), full())
    before = path.read_bytes()
    bundle.write(full(), path)
    assert path.read_bytes() == before
    with zipfile.ZipFile(path) as archive:
        said = archive.read("README.txt").decode()
    for name, spec in TABLES.items():
        assert f"{name}.parquet" in said
        assert all(column in said for column in spec.all)


def test_files_join_and_keep_the_details_of_a_workload_once(tmp_path: Path) -> None:
    bundle.write(full("train", "a"), tmp_path / "a.zip")
    bundle.write(full("train", "b"), tmp_path / "b.zip")
    results.write([row("c", "train")], tmp_path / "c.json")
    found = bundle.read_all([tmp_path / name for name in ("c.json", "a.zip", "b.zip")])
    assert found.rows["allocator"].tolist() == ["c", "a", "b"]
    assert found.details["memory"]["allocator"].tolist() == ["a", "a", "b", "b"]
    assert len(found.details["marks"]) == 2
    bundle.write(full("train", "a"), tmp_path / "again.zip")
    with pytest.raises(
        ResultError, match=r"again\.zip: train on sim:80GiB, a is already in .*a\.zip"
    ):
        bundle.read_all([tmp_path / "a.zip", tmp_path / "again.zip"])


def rewritten(path: Path, **changes: bytes | None) -> Path:
    """The bundle with members replaced, or left out where None."""
    with zipfile.ZipFile(path) as archive:
        members: dict[str, Any] = {name: archive.read(name) for name in archive.namelist()}
    members |= {name.replace("__", "."): data for name, data in changes.items()}
    made = path.with_name("changed.zip")
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in members.items():
            if data is not None:
                archive.writestr(name, data)
    return made


def parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows__json": None}, "it has no rows.json"),
        ({"rows__json": b"[{"}, "not JSON"),
        ({"rows__json": b"[\xb5"}, "not a file of results: it is not text"),
        ({"memory__parquet": b"PAR1 nothing"}, "memory.parquet: not Parquet"),
        (
            {"memory__parquet": parquet(memory("a", GIB).drop(columns="event"))},
            "memory.parquet: column 'event' is missing",
        ),
        (
            {"memory__parquet": parquet(memory("a", GIB).assign(event="late"))},
            "memory.parquet: a column has the wrong type",
        ),
        (
            {"memory__parquet": parquet(memory("a", GIB).assign(allocator=1))},
            "memory.parquet: column 'allocator' must be text",
        ),
    ],
)
def test_a_bad_bundle_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    bundle.write(with_memory([row("a")], memory("a", GIB)), tmp_path / "good.zip")
    path = rewritten(tmp_path / "good.zip", **changes)
    with pytest.raises(ResultError) as caught:
        bundle.read(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_small_bundles_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.zip"
    bundle.write(with_memory([row("a")], memory("a", GIB)), path)
    read = bundle.read(path)
    size, cells = path.stat().st_size, read.details["memory"].size
    monkeypatch.setattr(bundle, "_MOST_UNPACKED", 100)
    monkeypatch.setattr(bundle, "_MOST_RATIO", 1)
    with pytest.raises(ResultError, match=rf"bomb.zip: its {size:,} bytes would be unpacked to "):
        bundle.read(path)
    monkeypatch.setattr(bundle, "_MOST_RATIO", 100)  # it is large itself
    bundle.read(path)
    monkeypatch.undo()
    monkeypatch.setattr(bundle, "_MOST_CELLS", cells - 1)
    monkeypatch.setattr(bundle, "_MOST_CELLS_PER_BYTE", 0)
    with pytest.raises(ResultError, match=rf"memory.parquet: claims {cells} values in [0-9,]+ byt"):
        bundle.read(path)
    monkeypatch.setattr(bundle, "_MOST_CELLS_PER_BYTE", 1)
    bundle.read(path)


def test_the_last_runs_of_a_sweep_count(tmp_path: Path) -> None:
    """Of each workload those of its last trace, and of each run the last version's."""

    def record(workload: str, trace: str, allocator: str, code: str, events: int) -> Any:
        key = {"workload": workload, "trace": trace, "allocator": allocator, "code": code}
        return {
            "key": key | {"device": "sim:80GiB"},
            "row": row(allocator, workload, events=events),
            "error": None if events else "failed",
        }

    records = [
        record("b", "1", "naive", "new", 1),
        record("b", "1", "naive", "new", 2),  # the same run again
        record("a", "2", "naive", "old", 3),
        record("a", "2", "naive", "new", 0),
        record("a", "2", "bfc", "old", 5),
        record("c", "1", "naive", "new", 6),  # the same run by another name
        record("b", "3", "bfc", "new", 7),  # another trace
    ]
    text = b"".join(json.dumps(one).encode() + b"\n" for one in records)
    assert bundle.parse(text + b'{"key": {"cut', "x") == records
    with pytest.raises(ResultError, match=r"^x: line 2: not a sweep result"):
        bundle.parse(text.replace(b'"events": 2', b'"events": '), "x")
    table = bundle.frame(records)
    assert table["events"].tolist() == [6, 3, 0, 5, 7]
    assert table["workload"].tolist() == ["c", "a", "a", "a", "b"]
    assert [*table.columns] == [*results.SCHEMA, "trace", "code", "error"]
    assert table["trace"].tolist() == ["1", "2", "2", "2", "3"]
    assert table["code"].tolist() == ["new", "old", "new", "old", "new"]
    assert table["error"].fillna("").tolist() == ["", "", "failed", "", ""]
    (tmp_path / "s.jsonl").write_bytes(text)
    found = bundle.read(tmp_path / "s.jsonl")
    assert found.rows["events"].tolist() == [5, 0, 7, 6]
    assert found.notes == (
        f"{tmp_path / 's.jsonl'}: 3 older runs are left out: repeated since, or of another trace",
    )
    (tmp_path / "one.jsonl").write_bytes(text[: text.index(b"\n", text.index(b"\n") + 1) + 1])
    (note,) = bundle.read(tmp_path / "one.jsonl").notes
    assert ": 1 older run is left out" in note
