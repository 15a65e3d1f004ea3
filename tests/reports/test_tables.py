# SPDX-License-Identifier: Apache-2.0
"""The comparison tables: numbers, marks, and the width of a terminal."""

import math
from typing import Any

import pytest

from allocbench.reports.page import tables
from allocbench.reports.page.tables import Cell, Table
from allocbench.reports.rows.ranking import best, cases, marks
from allocbench.reports.rows.results import SCHEMA, ResultError, frame
from tests.result_rows import floor, row, sized


def cell(table: Table, allocator: str, metric: str) -> Cell:
    """The cell of one allocator and metric."""
    names = [heading.column.name for heading in table.headings]
    found = next(one for one in table.rows if one.allocator == allocator)
    return found.cells[names.index(metric)]


def marked(table: Table, metric: str) -> dict[str, str]:
    """The marks of one column by allocator, where there are any."""
    found = {one.allocator: cell(table, one.allocator, metric).mark for one in table.rows}
    return {name: str(mark) for name, mark in found.items() if mark}


def test_times_within_the_spread_of_the_passes_do_not_differ() -> None:
    def timed(name: str, minimum: float, most: float | None) -> dict[str, Any]:
        return row(name, seconds_per_event_steady=minimum, seconds_per_event_steady_max=most)

    metric = "seconds_per_event_steady"
    close = [timed("a", 30e-9, 34e-9), timed("b", 33e-9, 35e-9), timed("c", 60e-9, 61e-9)]
    (table,) = tables.comparison(frame(close))
    assert marked(table, metric) == {"a": "best", "b": "best", "c": "worst"}
    (table,) = tables.comparison(frame(close[:2]))
    assert marked(table, metric) == {}
    (table,) = tables.comparison(frame([timed("a", 30e-9, None), *close[1:]]))
    assert marked(table, metric) == {}  # nothing is known of the passes of the fastest
    (table,) = tables.comparison(frame([{**one, "passes": 3} for one in close]))
    assert marked(table, metric) == {}  # three passes are too few


def test_a_wide_interval_leaves_no_time_without_the_mark_of_a_longer_one() -> None:
    metric = "alloc_p50_seconds"

    def timed(name: str, low: float, value: float, high: float) -> dict[str, Any]:
        ends: dict[str, Any] = {metric: value, f"{metric}_low": low, f"{metric}_high": high}
        return row(name, **ends)

    rows = [
        timed("best", 10, 11, 12),
        timed("narrow", 13, 14, 15),
        timed("wide", 12, 20, 21),
        timed("as wide", 20, 20, 20),
        timed("middle", 22, 23, 24),
        timed("long", 25, 30, 60),
        timed("narrow too", 40, 41, 42),
        timed("worst", 50, 51, 52),
    ]
    (case,) = cases(frame(rows[::-1]))
    fast, slow = ("best", "narrow", "wide", "as wide"), ("long", "narrow too", "worst")
    assert set(best(case.rows, SCHEMA[metric])) == set(fast)
    assert marks(case.rows, SCHEMA[metric]) == dict.fromkeys(fast, "best") | dict.fromkeys(
        slow, "worst"
    )
    rows[0][f"{metric}_high"] = 100
    (case,) = cases(frame(rows))
    assert marks(case.rows, SCHEMA[metric]) == {}


@pytest.mark.parametrize(
    ("changes", "metric", "reason"),
    [
        ({"failures": 2, "overhead": None}, "overhead", "requests failed"),
        ({"external_fragmentation": None}, "external_fragmentation", "keeps no free blocks"),
        ({"min_capacity": None}, "min_capacity", "no capacity is large enough"),
        ({"alloc_p99_seconds": None}, "alloc_p99_seconds", "not measured"),
        ({}, "planned_requests", "has no plan"),
        ({"unavailable": "needs a GPU", "min_capacity": None}, "min_capacity", "no result"),
    ],
)
def test_a_missing_number_has_a_reason(changes: dict[str, Any], metric: str, reason: str) -> None:
    rows = frame([row("a", planned_requests=1), row("b", **changes)])
    (table,) = tables.comparison(rows, [metric])
    assert cell(table, "b", metric).text == "n/a"
    assert cell(table, "b", metric).reason == reason
    assert cell(table, "a", metric).reason == ""


def test_a_null_gpu_is_never_called_measured() -> None:
    on_null = row(
        "a", device="null:l4", device_kind="null", device_seconds=None, device_seconds_source=None
    )
    _, table = tables.comparison(frame([row("a"), on_null]), ["peak_reserved", "device_seconds"])
    assert table.title == "train on null:l4 (null GPU)"
    assert not any("measured" in heading.text for heading in table.headings)


def test_geometric_mean_over_workloads() -> None:
    rows = [
        sized("a", 10, 40, "one"),
        sized("b", 20, 10, "one"),
        floor(workload="one"),
        sized("a", 10, 40, "two"),
        sized("b", 5, 10, "two", failures=2),
        sized("c", 30, 10, "two"),
        floor(workload="two"),
    ]
    (table,) = tables.geometric_means(frame(rows))
    assert table.title == "Geometric mean over 2 workloads"
    assert [one.allocator for one in table.rows] == ["a", "b", "c", "ground"]
    assert cell(table, "b", "peak_reserved").value == pytest.approx(math.sqrt(2 * 0.5))
    assert cell(table, "b", "seconds_per_event_steady").value == pytest.approx(0.25)
    assert cell(table, "b", "seconds_per_event_steady").text == "0.25x"
    assert cell(table, "c", "peak_reserved").text == "n/a"  # not on every workload
    assert cell(table, "ground", "peak_reserved").value == pytest.approx(0.8)
    assert cell(table, "b", "failures").value == 2
    assert marked(table, "peak_reserved") == {}  # b failed, c is not on all: only a is left
    (table,) = tables.geometric_means(frame(rows), reference="b")
    assert cell(table, "a", "seconds_per_event_steady").value == pytest.approx(4)
    with pytest.raises(ResultError, match="no row 'c'"):
        tables.geometric_means(frame(rows), reference="c")
