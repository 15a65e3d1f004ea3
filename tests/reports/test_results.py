# SPDX-License-Identifier: Apache-2.0
"""The result row: valid and invalid rows, and files that keep every value."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.base import units
from allocbench.base.errors import UserError
from allocbench.reports.rows import bundle, results
from allocbench.reports.rows.results import COLUMNS, SCHEMA, ResultError
from tests.result_rows import row


def test_every_column_is_described() -> None:
    assert len(SCHEMA) == len(COLUMNS)
    for column in COLUMNS:
        assert column.heading
        assert column.definition.endswith("."), column.name
        assert column.median == "" or column.median in SCHEMA
        assert not column.fraction or column.unit == "ratio"


def test_frame_has_the_schema_and_exact_bytes() -> None:
    exact = 2**62 + 1  # not a float64
    table = results.frame([row("a", peak_reserved=exact), row("b", peak_reserved=None)])
    assert list(table.columns) == list(SCHEMA)
    assert results.records(table)[0]["peak_reserved"] == exact
    assert results.records(table)[1]["peak_reserved"] is None


def test_a_list_of_values_stays_a_list() -> None:
    table = pd.DataFrame([{"edits": ["a", "b"], "need": 1}, {"edits": [], "need": None}])
    assert [row["edits"] for row in results.records(table)] == [["a", "b"], []]
    assert results.records(table)[1]["need"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peak_resrved": 1}, "unknown column 'peak_resrved'; did you mean peak_reserved"),
        ({"peak_reserved": "10"}, "column 'peak_reserved' must be a number, found text"),
        ({"peak_reserved": True}, "column 'peak_reserved' must be a number, found a boolean"),
        ({"peak_reserved": 1.5}, "must be a whole number of at least 0, found 1.5"),
        ({"load_mean": 10**400}, "'load_mean' has a number of 401 digits"),
        ({"device_calls": -1}, "must be a whole number of at least 0, found -1"),
        ({"workload": 3}, "column 'workload' must be text"),
        ({"workload": "a\x1b[2Jb"}, "column 'workload' has control characters"),
        ({"candidate": "yes"}, "must be true or false"),
        ({"candidate": 1}, "must be true or false"),
        ({"overhead": {"mean": 1}}, "column 'overhead' must be a number, found an object"),
        ({"device_seconds_source": None}, "must be one of estimate, measured, found None"),
        ({"device_seconds_source": "guess"}, "found 'guess'"),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ResultError) as caught:
        results.frame([row("a", **changes)])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_estimated_and_measured_device_seconds_do_not_mix() -> None:
    measured = row("b", device_seconds_source="measured")
    with pytest.raises(ResultError, match="both estimated and measured"):
        results.frame([row("a"), measured])
    results.frame([row("a"), {**measured, "device": "cuda:0", "device_kind": "cuda"}])


def test_write_is_strict_json_and_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    rows = [row("a", overhead=float("nan"), min_capacity=None), row("naïve ✓")]
    results.write(rows, path)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    written = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert [list(record) for record in written] == [list(SCHEMA)] * 2
    assert written[0]["overhead"] is None
    assert written[1]["allocator"] == "naïve ✓"
    assert all(
        not isinstance(value, dict | list) for record in written for value in record.values()
    )
    pd.testing.assert_frame_equal(bundle.read(path).rows, results.frame(rows))
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=50)
@given(
    memory=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    time=st.one_of(st.none(), st.floats(0, 1e6)),
    name=st.text(st.characters(exclude_categories=["Cc", "Cs"])),
)
def test_a_frame_survives_being_rows_again(
    memory: int | None, time: float | None, name: str
) -> None:
    table = results.frame([row(name, peak_reserved=memory, alloc_p50_seconds=time)])
    record = results.records(table)[0]
    assert (record["peak_reserved"], record["alloc_p50_seconds"]) == (memory, time)
    pd.testing.assert_frame_equal(results.frame(results.records(table)), table)
    pd.testing.assert_frame_equal(results.frame(table), table)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    results.write([row("a")], path)
    before = path.read_bytes()
    with pytest.raises(ResultError):
        results.write([row("a", events=None)], path)
    with pytest.raises(UserError, match="cannot write"):
        results.write([row("a")], tmp_path / "no-folder" / "rows.json")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.json"
    results.write([row("a")], path)
    before = path.read_bytes()

    class FullDisk(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda file, mode: FullDisk(file, mode.replace("b", "")))
        with pytest.raises(UserError, match=r"rows\.json: cannot write: No space left on device"):
            results.write([row("b")], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_rows_and_tables_need_neither_seaborn_nor_jinja() -> None:
    program = (
        "import sys; sys.modules.update({'seaborn': None, 'jinja2': None, 'matplotlib': None})\n"
        "import allocbench.reports.rows.results, allocbench.reports.page.tables\n"
        "import allocbench.reports.advice.findings\n"
        "for name in ('charts.figures', 'page.html'):\n"
        "    try: __import__(f'allocbench.reports.{name}')\n"
        "    except ModuleNotFoundError as error: print(error)\n"
        "    else: print('imported')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(", or allocbench with its extra 'report'" in line for line in lines)


@given(st.lists(st.text(max_size=60), unique=True, max_size=20), st.integers(8, 30))
def test_short_names_fit_and_stay_distinct(names: list[str], width: int) -> None:
    short = units.short(names, width)
    assert list(short) == names
    assert len(set(short.values())) == len(names)
    assert all(len(label) <= width for label in short.values())
    assert all(short[name] == name for name in names if len(name) <= width and names[0] == name)
