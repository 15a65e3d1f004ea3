# SPDX-License-Identifier: Apache-2.0
"""`planned` leaves little fragmentation on every bundled training workload."""

import re
from pathlib import Path

import pytest

from allocbench.base import units
from allocbench.workloads import TraceError, catalog
from benchmarks import fragmentation
from benchmarks.workshop import second_runs

PAGE = Path(__file__).parents[2] / "docs" / "strategies" / "planned.md"
TABLE = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", second_runs.names())
def test_planned_removes_most_of_the_fragmentation_of_caching(name: str) -> None:
    result = fragmentation.measure(name)
    assert result["caching"] > 0
    assert result["repeated"] <= 0.05 * result["caching"], "with the plan of the same run"
    assert result["other"] <= 0.30 * result["caching"], "with the plan of another run"
    assert result["alone_later"] <= 0.20 * result["caching_later"], "alone, from the second step on"
    row = next(line for line in TABLE.splitlines() if line.startswith(f"| {name} |"))
    shown = re.findall(r"[\d.]+ [KMG]iB", row)
    ways = ("max_load", "caching", "repeated", "other", "caching_later", "alone_later")
    assert shown == [units.size(result[way]) for way in ways]


def test_another_run_makes_other_requests() -> None:
    for name in second_runs.names():
        run, other = catalog.load(name), second_runs.load(name)
        assert other.name == f"{name}-again"
        assert sorted(run.size) != sorted(other.size)


def test_inference_workloads_have_no_second_run() -> None:
    with pytest.raises(TraceError, match="llm-decode: has no second run; workloads with one:"):
        second_runs.load("llm-decode")
