# SPDX-License-Identifier: Apache-2.0
"""The comparison tables: numbers, marks, and the width of a terminal."""

import io
import math
from typing import Any

import pytest
from rich.console import Console

from allocbench.reports.advice import findings
from allocbench.reports.page import tables
from allocbench.reports.page.tables import Cell, Table
from allocbench.reports.rows.ranking import best, cases, marks
from allocbench.reports.rows.results import SCHEMA, ResultError, frame
from tests.result_rows import GIB, HOSTILE, floor, row, sized


def cell(table: Table, allocator: str, metric: str) -> Cell:
    """The cell of one allocator and metric."""
    names = [heading.column.name for heading in table.headings]
    found = next(one for one in table.rows if one.allocator == allocator)
    return found.cells[names.index(metric)]


def marked(table: Table, metric: str) -> dict[str, str]:
    """The marks of one column by allocator, where there are any."""
    found = {one.allocator: cell(table, one.allocator, metric).mark for one in table.rows}
    return {name: str(mark) for name, mark in found.items() if mark}


def printed(table: Table, width: int = 112) -> str:
    """The table as a terminal of that width shows it, without color."""
    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(tables.to_rich(table))
    return output.getvalue()


def test_every_number_in_the_table_is_the_row_s() -> None:
    rows = [sized("a", 9.5, 31.23), sized("b", 12, 40, external_fragmentation=None), floor()]
    (table,) = tables.comparison(frame(rows))
    assert [one.allocator for one in table.rows] == ["a", "b", "ground"]
    checked = 0
    for given in rows:
        for heading in table.headings:
            column = heading.column
            value = given.get(column.name)
            found = cell(table, given["allocator"], column.name)
            assert found.value == value, column.name
            if column.name != "device_seconds":
                assert found.text == column.text(value)
            assert found.exact.partition(";")[0] == column.exact(value)
            checked += 1
    assert checked == 3 * len(table.headings) > 100
    assert cell(table, "b", "external_fragmentation").text == "n/a"
    assert cell(table, "a", "peak_reserved").text == "9.50 GiB"
    assert cell(table, "a", "peak_reserved").exact == f"{int(9.5 * GIB):,} bytes"
    assert cell(table, "a", "seconds_per_event_steady").text == "31.2 ns"
    assert cell(table, "a", "device_seconds").text == "2-10 ms"
    assert cell(table, "a", "device_seconds").exact == (
        "0.004 seconds; within the assumed costs: 2.00 ms to 10.0 ms"
    )


def test_ratios_are_to_the_first_candidate_or_the_row_named() -> None:
    rows = frame([floor(), sized("a", 10, 40), sized("b", 15, 20)])
    (table,) = tables.comparison(rows)
    assert [one.allocator for one in table.rows if one.is_reference] == ["a"]
    assert cell(table, "b", "peak_reserved").ratio == 1.5
    assert cell(table, "b", "peak_reserved").ratio_text == "1.50x"
    assert cell(table, "ground", "min_capacity").ratio == 0.8
    (table,) = tables.comparison(rows, reference="b")
    assert cell(table, "a", "peak_reserved").ratio == pytest.approx(10 / 15)
    with pytest.raises(
        ResultError, match="no row 'c' to use as the reference on 'train'; the rows are"
    ):
        tables.comparison(rows, reference="c")


def test_an_undefined_ratio_is_not_shown() -> None:
    rows = [row("a", stranded=0, min_capacity=None), row("b", stranded=5, min_capacity=7)]
    (table,) = tables.comparison(frame(rows))
    assert cell(table, "b", "stranded").ratio is None
    assert cell(table, "b", "min_capacity").ratio is None
    assert cell(table, "b", "overhead").ratio is None  # already a ratio, to the bound
    assert cell(table, "b", "events").ratio is None


def test_best_and_worst_are_candidates_that_served_every_request() -> None:
    rows = [
        sized("small", 9, 50),
        sized("big", 20, 30),
        sized("middle", 12, 40),
        sized("broken", 8.5, 10, failures=3),
        sized("unknown", 10, 45, min_capacity=None),
        floor(),
    ]
    (table,) = tables.comparison(frame(rows))
    assert marked(table, "min_capacity") == {"small": "best", "big": "worst"}
    assert marked(table, "peak_reserved") == {"small": "best", "big": "worst"}
    assert marked(table, "seconds_per_event_steady") == {"big": "best", "small": "worst"}
    assert marked(table, "failures") == {"broken": "failed"}
    assert marked(table, "events") == {}
    broken = next(one for one in table.rows if one.allocator == "broken")
    assert broken.failures == 3


def test_more_is_better_for_utilization() -> None:
    rows = [row("a", utilization=0.5), row("b", utilization=0.9), row("c", utilization=0.7)]
    (table,) = tables.comparison(frame(rows))
    assert marked(table, "utilization") == {"b": "best", "a": "worst"}


def test_ties_share_a_mark_and_equal_rows_have_none() -> None:
    rows = [row("a", stranded=1), row("b", stranded=1), row("c", stranded=2), row("d", stranded=2)]
    (table,) = tables.comparison(frame(rows))
    ends = {"a": "best", "b": "best", "c": "worst", "d": "worst"}
    assert marked(table, "stranded") == ends
    assert marked(table, "peak_reserved") == {}
    (alone,) = tables.comparison(frame(rows[:1]))
    assert all(not one.mark for one in alone.rows[0].cells)


def test_values_that_read_the_same_share_a_mark() -> None:
    def timed(name: str, time: float, capacity: int) -> dict[str, Any]:
        return row(
            name,
            min_capacity=capacity,
            seconds_per_event_steady=time,
            seconds_per_event_steady_max=time,
        )

    rows = [
        timed("a", 40.12e-9, 10 * GIB),
        timed("b", 40.14e-9, 10 * GIB + 1),
        timed("c", 41e-9, 20 * GIB),
    ]
    (table,) = tables.comparison(frame(rows))
    both = {"a": "best", "b": "best", "c": "worst"}
    assert marked(table, "seconds_per_event_steady") == both
    assert marked(table, "min_capacity") == both


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


@pytest.mark.parametrize("metric", ["alloc_p50_seconds", "free_p99_seconds", "device_seconds"])
def test_measured_times_share_a_place_where_their_intervals_overlap(metric: str) -> None:
    def timed(name: str, low: float, value: float, high: float) -> dict[str, Any]:
        ends: dict[str, Any] = {
            metric: value,
            f"{metric}_low": low,
            f"{metric}_high": high,
        }
        return row(name, **ends, device_seconds_source="measured")

    rows = [
        timed("a", 30e-9, 31e-9, 50e-9),
        timed("b", 49e-9, 50e-9, 51e-9),
        timed("c", 52e-9, 80e-9, 99e-9),
        timed("d", 98e-9, 99e-9, 99e-9),
    ]
    (table,) = tables.comparison(frame(rows))
    assert marked(table, metric) == {"a": "best", "b": "best", "c": "worst", "d": "worst"}
    assert cell(table, "a", metric).exact == "3.1e-08 seconds; the passes: 30.0 ns to 50.0 ns"
    rows[1][f"{metric}_low"] = 50.1e-9
    (table,) = tables.comparison(frame(rows))
    assert marked(table, metric) == {"a": "best", "c": "worst", "d": "worst"}
    for one in rows:
        one[f"{metric}_high"] = None
    (table,) = tables.comparison(frame(rows))
    assert marked(table, metric) == {}


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


def test_a_place_that_most_share_is_marked_only_if_their_values_are_equal() -> None:
    metric = "alloc_p50_seconds"

    def timed(name: str, low: float, value: float, high: float) -> dict[str, Any]:
        ends: dict[str, Any] = {metric: value, f"{metric}_low": low, f"{metric}_high": high}
        return row(name, **ends)

    noisy = [timed(name, 10, 20 + n, 90) for n, name in enumerate("abcde")]
    slow = [timed("f", 99, 100, 101)]
    (table,) = tables.comparison(frame(noisy + slow))
    assert marked(table, metric) == {"f": "worst"}
    (table,) = tables.comparison(frame([timed("f", 1, 2, 3), *noisy]))
    assert marked(table, metric) == {"f": "best"}
    (table,) = tables.comparison(frame([timed(name, 20, 20, 20) for name in "abcde"] + slow))
    assert marked(table, metric) == dict.fromkeys("abcde", "best") | {"f": "worst"}
    (case,) = cases(frame(noisy + slow))
    assert set(best(case.rows, SCHEMA[metric])) == set("abcde")


def test_estimated_device_times_are_exact() -> None:
    (table,) = tables.comparison(frame([row("a"), row("b", device_seconds=0.0040001)]))
    assert marked(table, "device_seconds") == {"a": "best", "b": "worst"}


def test_a_mean_over_workloads_has_the_mean_of_the_intervals() -> None:
    def timed(name: str, nanoseconds: float, workload: str, most: float) -> dict[str, Any]:
        return sized(name, 9, nanoseconds, workload, seconds_per_event_steady_max=most * 1e-9)

    rows = [
        timed("a", 10, "one", 12),
        timed("a", 10, "two", 12),
        timed("b", 14, "one", 15),
        timed("b", 10, "two", 11),
        timed("c", 20, "one", 21),
        timed("c", 20, "two", 21),
    ]
    (table,) = tables.geometric_means(frame(rows))
    ends = {"a": "best", "b": "best", "c": "worst"}  # b: from 1.18 on; a: up to 1.2
    assert marked(table, "seconds_per_event_steady") == ends


def test_nothing_is_marked_when_no_candidate_served_every_request() -> None:
    rows = frame([row("a", failures=1, stranded=1), row("b", failures=2, stranded=2), floor()])
    (case,) = cases(rows)
    for column in SCHEMA.values():
        assert marks(case.rows, column) == {}
    claims = findings.verdict(case)
    assert [claim.label for claim in claims] == ["failed requests"]
    assert findings.sentence(claims) == "Failed requests: a 1 and b 2 (on sim:80GiB)."


def test_columns_without_numbers_are_named_not_shown() -> None:
    rows = frame([row("a", min_capacity=None), row("b", min_capacity=None)])
    (table,) = tables.comparison(rows, tables.SUMMARY)
    shown = [heading.column.name for heading in table.headings]
    assert "min_capacity" not in shown
    assert "peak_reserved" in shown
    assert table.absent == ("min capacity",)


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


def test_planned_and_fallback_are_shown_where_a_row_has_them() -> None:
    rows = frame([row("a"), row("b", planned_requests=90, fallback_requests=10)])
    (table,) = tables.comparison(rows)
    assert cell(table, "b", "planned_requests").text == "90"
    assert cell(table, "a", "fallback_requests").text == "n/a"


def test_device_time_says_what_it_is() -> None:
    on_gpu = row("a", device="cuda:0", device_kind="cuda", device_seconds_source="measured")
    simulated, measured = tables.comparison(frame([row("a"), on_gpu]), ["device_seconds"])
    assert simulated.headings[-1].text == "device time (estimate)"
    assert measured.headings[-1].text == "device time (measured)"
    assert [table.title for table in (simulated, measured)] == [
        "train on sim:80GiB (simulated)",
        "train on cuda:0 (measured)",
    ]


def test_a_null_gpu_is_never_called_measured() -> None:
    on_null = row(
        "a",
        device="null:l4",
        device_kind="null",
        device_seconds=None,
        device_seconds_source=None,
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


def test_one_workload_has_no_mean_and_devices_have_their_own() -> None:
    assert tables.geometric_means(frame([row("a"), row("b")])) == []
    apart = [row("a"), row("a", "serve", device="sim:40GiB")]
    assert tables.geometric_means(frame(apart)) == []
    both = [*apart, row("a", "serve"), row("a", device="sim:40GiB")]
    means = tables.geometric_means(frame(both))
    assert [table.caption.rpartition(" ")[2] for table in means] == ["sim:80GiB", "sim:40GiB"]


def test_the_terminal_table_fits_and_shows_what_matters() -> None:
    rows = [
        sized("a", 9, 31.2),
        sized("pooled:fast=no,limit=24GiB,a=1", 12, 40, fragmentation_ratio=None),
        sized("c", 20, 50, failures=12),
        floor(),
    ]
    (table,) = tables.comparison(frame(rows), tables.TERMINAL)
    text = printed(table, width=124)
    assert max(len(line) for line in text.splitlines()) <= 124
    assert "…" not in text
    lines = text.splitlines()
    mine = next(line for line in lines if line.startswith("a (reference)"))
    for part in ("9.00 GiB 1.00x+", "2.00 GiB", "10.0%", "31.2 ns 1.00x+", "2-10 ms"):
        assert part in mine
    assert "n/a" in text
    assert "(estimate)" in text
    failed = next(line for line in lines if line.startswith("c (failed)"))
    assert failed.rstrip().endswith("12!")
    assert any(line.startswith("ground (floor)") for line in lines)
    assert "124,000" not in text
    assert "1,000 events, max load 8.00 GiB, on sim:80GiB; ratios are to a" in text


def test_names_are_text_in_the_terminal() -> None:
    (table,) = tables.comparison(frame([row(HOSTILE, workload=HOSTILE)]), tables.TERMINAL)
    text = printed(table, width=300)
    assert text.count(HOSTILE) >= 2
