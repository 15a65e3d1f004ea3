# SPDX-License-Identifier: Apache-2.0
"""What `planned` promises on every bundled training workload: to leave little fragmentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allocbench.reports import units
from allocbench.workloads import TraceError, again, catalog
from benchmarks import fragmentation

PAGE = Path(__file__).parent.parent / "docs" / "strategies" / "planned.md"
TABLE = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", again.names())
def test_planned_leaves_little_of_what_caching_does(name: str) -> None:
    found = fragmentation.measure(name)
    assert found["caching"] > 0
    assert found["repeated"] <= 0.05 * found["caching"], "with the plan of the same run"
    assert found["other"] <= 0.30 * found["caching"], "with the plan of another run"
    assert found["alone_later"] <= 0.20 * found["caching_later"], "alone, from the second step on"
    row = next(line for line in TABLE.splitlines() if line.startswith(f"| {name} |"))
    shown = re.findall(r"[\d.]+ [KMG]iB", row)
    ways = ("max_load", "caching", "repeated", "other", "caching_later", "alone_later")
    assert shown == [units.size(found[way]) for way in ways]


def test_another_run_makes_other_requests() -> None:
    for name in again.names():
        run, other = catalog.load(name), again.load(name)
        assert other.name == f"{name}-again"
        assert sorted(run.size) != sorted(other.size)


def test_there_is_no_other_run_of_what_does_not_train() -> None:
    with pytest.raises(TraceError, match="llm-decode: no other run of it; there is one of"):
        again.load("llm-decode")
