# SPDX-License-Identifier: Apache-2.0
"""Scenarios of driver calls, costs of calls, replays and checks of memory, on the null GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.workshop.gpu.driver.compare import differences
from benchmarks.workshop.gpu.driver.scenarios import SCENARIOS, TOGETHER
from tests.null_driver import environment, python

GIB = 1 << 30
NO_RULES = "the null GPU does not implement"
H100 = {"memory": 80 * GIB, "context": GIB // 2, "count": 1}


def dry(stage: str, folder: Path) -> dict[str, Any]:
    """The values of the only task of a stage."""
    command = [sys.executable, "-m", "benchmarks.workshop.gpu", "--dry", "--only", stage]
    done = subprocess.run(
        [*command, "--into", str(folder)],
        env=environment(H100),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob(f"*/{stage}/*.json")
    values: dict[str, Any] = json.loads(path.read_text())["measured"]
    return values


def test_every_scenario_ends_well_and_names_each_line_once(tmp_path: Path) -> None:
    found = dry("driver", tmp_path)["scenarios"]
    assert list(found) == list(SCENARIOS)
    assert set(found) > TOGETHER
    for name, one in found.items():
        unexplained = [line for line in one["errors"].splitlines() if NO_RULES not in line]
        assert (one["exit_code"], unexplained) == (0, []), name
        labels = [line["label"] for line in one["lines"]]
        assert len(set(labels)) == len(labels), name
        assert labels or name == "contexts.illegal_address"  # which needs kernels
    lines = {line["label"]: line for line in found["memory.bytes_by_size"]["lines"]}
    assert lines[f"{3 << 20} bytes"]["taken"] == [4 << 20] * 3
    captures = found["captures.captures_global_its_thread"]["lines"]
    assert next(line for line in captures if line["label"] == "alloc") == {
        "label": "alloc",
        "status": 900,
        "begun": 0,
        "state": 2,
        "ended": 901,
    }


def test_results_differ_where_a_status_a_value_or_an_exit_code_does() -> None:
    def result(code: int, **statuses: int) -> dict[str, Any]:
        lines = [{"label": label, "status": status} for label, status in statuses.items()]
        return {"exit_code": code, "lines": lines}

    first = {"a": result(0, one=0, two=1), "b": result(0)}
    second = {"a": result(-11, one=0, two=2), "c": result(0)}
    second["a"]["lines"][0]["raw"] = 0x1234
    assert list(differences(first, second)) == [
        ("a", "exit code", 0, -11),
        ("a", "two", {"status": 1}, {"status": 2}),
        ("b", "", True, False),
        ("c", "", False, True),
    ]
    assert list(differences(first, first)) == []


def test_the_costs_of_calls_are_rows(tmp_path: Path) -> None:
    found = dry("costs", tmp_path)
    assert found["failures"] == {}
    for row in found["costs"]:
        assert 0 < row["least"] <= row["quartile_1"] <= row["median"]
        assert row["median"] <= row["quartile_3"] <= row["most"]
    mapped = [row for row in found["costs"] if row["call"] == "cuMemMap"]
    assert {row["case"] for row in mapped} > {"", "second mapping", "0 live pages"}


def test_replays_on_both_devices_have_equal_bytes(tmp_path: Path) -> None:
    found = dry("replays", tmp_path)
    assert found["left"] == []
    rows = {row["allocator"]: row for row in found["rows"]}
    assert set(rows) == {"caching", "expandable", "cuda_async", "naive"}
    for name in rows:
        assert set(rows[name]["differs"]) <= {"counters"}  # steps of a search among addresses
        assert rows[name]["simulated"]["device_seconds_low"] > 0
    assert rows["cuda_async"]["differs"] == []  # the null GPU has the same model of a pool


def test_wrong_words_are_found(tmp_path: Path) -> None:
    found = dry("integrity", tmp_path)
    assert found["changed_on_purpose"]["read_wrong"] == 1
    for row in found["rows"]:
        assert row["blocks"] == 16177
        assert (row["failures"], row["wrong_words"], row["read_wrong"]) == (0, 0, 0)


@pytest.mark.parametrize(("place", "wrong"), [(0, 0), (4096, 1), (8192 - 4, 1)])
def test_a_block_within_another_is_found(place: int, wrong: int) -> None:
    done = python(
        f"""
from benchmarks.workshop.gpu.driver.cuda import Cuda
from benchmarks.workshop.gpu.tasks.integrity import Checker
cuda = Cuda()
cuda.open()
checker, address = Checker(cuda, 2), cuda.alloc(1 << 20)
checker.fill(0, address, 8192)
if {place}:
    checker.fill(1, address + {place}, 8192)
checker.compare(0, address, 8192)
print(checker.read_wrong)
"""
    )
    assert (done.stdout, done.stderr) == (f"{wrong}\n", "")


def test_nothing_of_the_null_driver_is_called_measured(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.workshop.gpu.driver.calls",
        "--match",
        "virtual.retained",
    ]
    subprocess.run(
        [*command, "--output", str(tmp_path / "found.json")], env=environment(H100), check=True
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert "measured" not in found
    assert found["provenance"]["null"] == "the driver of the null GPU"
    assert set(found["null"]["scenarios"]) == {"virtual.retained"}
