# SPDX-License-Identifier: Apache-2.0
"""Results of asv: read back, charted by allocator, and errors name bad files."""

import json
from pathlib import Path
from typing import Any

import pytest

from allocbench import api
from allocbench.reports.rows import asv, results
from tests import asv_results as made
from tests.result_rows import GIB, HOSTILE, row

NAME = "memory.Memory.track_peak_reserved"
LATENCY = "latency.Latency.latency_alloc"
DAY = 86_400_000


def described() -> dict[str, Any]:
    names = ["allocator", "workload"]
    return {
        NAME: {"param_names": names, "unit": "bytes", "version": "1"},
        LATENCY: {"param_names": [*names, "streams"], "unit": "seconds", "version": "1"},
        "version": 2,
    }


def commit(n: int, bfc: float | None = 2.0 * GIB) -> dict[str, Any]:
    allocators, workloads = ["'bfc'", f"{HOSTILE!r}"], ["'train'"]
    return {
        "commit_hash": f"{n:040x}",
        "date": 1_700_000_000_000 + n * DAY,
        "params": {"machine": "bench"},
        "env_name": "virtualenv-py3.11",
        "result_columns": [
            *("result", "params", "version", "started_at", "duration"),
            *("stats_ci_99_a", "stats_ci_99_b"),
        ],
        "results": {
            NAME: [[bfc, float("nan")], [allocators, workloads], "1"],
            LATENCY: [
                [1e-8 * n, 2e-8],
                [["'bfc'"], workloads, ["1", "2"]],
                "1",
                0,
                0,
                [0.9e-8 * n, None],
                [1.1e-8 * n, None],
            ],
            "import.track_nothing": [None, [], "1"],
        },
        "version": 2,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "results"
    (place / "bench").mkdir(parents=True)
    (place / "benchmarks.json").write_text(json.dumps(described()))
    (place / "bench" / "machine.json").write_text("{}")
    for n in (3, 1, 2):  # files are not in order of their dates
        text = json.dumps(commit(n, (n + 1) * GIB))
        (place / "bench" / f"{n:08x}-env.json").write_text(text)
    return place


def test_values_are_read_in_order_of_their_dates(folder: Path) -> None:
    table = asv.history(folder)
    assert list(table) == list(asv.COLUMNS)
    memory = table[table["benchmark"] == NAME]
    assert memory["value"].tolist() == [2 * GIB, 3 * GIB, 4 * GIB]
    assert set(memory["allocator"]) == {"bfc"}  # the other has no value
    assert set(memory["unit"]) == {"bytes"}
    latency = table[table["benchmark"] == LATENCY]
    assert latency["parameters"].tolist() == ["streams=1", "streams=2"] * 3
    assert latency["low"].notna().tolist() == [True, False] * 3
    assert latency["high"].iloc[0] == 1.1e-8


def test_a_history_has_the_columns_of_results(tmp_path: Path) -> None:
    for n, version in enumerate(("1", "1", "0")):
        numbers = made.NUMBERS | {made.PEAK: [4096.0 + n, None]}
        made.write(tmp_path, str(n) * 40, numbers, date=DAY * n, version=version)
    table = asv.frame(tmp_path)
    assert list(table) == ["commit", "machine", *results.SCHEMA]
    found = table[["commit", "allocator", "peak_reserved", "external_fragmentation", "date"]]
    assert found.astype(object).where(found.notna(), None).to_numpy().tolist() == [
        [str(n) * 40, *values, f"1970-01-0{n + 1}T00:00:00Z"]
        for n in (0, 1)
        for values in (["bfc", 4096 + n, 0.25], ["naive", None, None])
    ]
    assert table["seconds_per_event_steady"].tolist() == [2e-8, 3e-8] * 2
    ours = results.frame([row("bfc")])
    kinds = table.dtypes.drop(["commit", "machine", "candidate"])
    assert kinds.equals(ours.dtypes.drop("candidate"))
    assert table["candidate"].isna().all()
    assert set(table["device_kind"]) == {"simulated"}
    assert api.history(tmp_path).equals(table)
