# SPDX-License-Identifier: Apache-2.0
"""Estimates of device time: their ranges, and orders that depend on the assumed costs."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.base import units
from allocbench.reports.advice import findings
from allocbench.reports.page import html, tables
from allocbench.reports.rows import ResultError, ranking
from allocbench.reports.rows.assumptions import Cost, Estimate, condition, largest_ratio, to_text
from allocbench.reports.rows.ranking import cases
from allocbench.reports.rows.results import SCHEMA, frame
from tests.result_rows import row

MIB = 2**20
MALLOC = Cost("malloc", 20 * MIB, 20e-6, 50e-6, 200e-6)
LARGE = Cost("malloc", 1024 * MIB, 300e-6, 1000e-6, 3000e-6)
MAP = Cost("map", 2 * MIB, 10e-6, 40e-6, 160e-6)


def of(**calls: float) -> Estimate:
    names = {"malloc": MALLOC, "large": LARGE, "map": MAP}
    return Estimate(calls={names[name]: n for name, n in calls.items()})


def estimated(name: str, **calls: float) -> dict[str, Any]:
    """A row with these device calls."""
    made = of(**calls)
    return row(
        name,
        device_seconds=made.seconds,
        device_seconds_low=made.low,
        device_seconds_high=made.high,
        device_seconds_per_event=made.seconds / 1000,
        device_assumptions=to_text(made.calls.items()),
    )


def test_an_estimate_has_the_range_of_its_costs() -> None:
    made = of(malloc=3, map=10)
    assert made.seconds == pytest.approx(550e-6)
    assert made.low == pytest.approx(160e-6)
    assert made.high == pytest.approx(2200e-6)
    assert made.text == "0.16-2.2 ms"
    assert (Estimate(1e-3) + made).low == pytest.approx(1160e-6)


def test_a_shared_cost_decides_nothing_where_ranges_overlap() -> None:
    fewer, more = of(malloc=90), of(malloc=100)
    assert fewer.high > more.low  # the ranges overlap by far
    assert fewer.surely_less(more)
    assert not more.may_be_less(fewer)
    assert not fewer.undecided(more)
    assert condition(fewer, more) == ""


def test_sizes_of_a_call_vary_together_in_a_condition_and_apart_in_the_order() -> None:
    small, large = of(malloc=21), of(large=1)
    assert small.undecided(large)
    assert condition(large, small) == ""  # no single call decides: both are cudaMalloc


def test_equal_estimates_are_neither_less_nor_undecided() -> None:
    one, same = of(malloc=0.1 + 0.2, map=7), of(map=7, malloc=0.3)
    assert not one.surely_less(same)
    assert not same.surely_less(one)
    assert not one.undecided(same)


@given(st.tuples(*[st.integers(0, 40)] * 6), st.tuples(*[st.sampled_from([0, 1e-3])] * 2))
def test_the_order_is_that_of_every_corner_of_the_box(
    drawn: tuple[int, ...], fixed: tuple[float, float]
) -> None:
    (a, b, c, d, e, f), (x, y) = drawn, fixed
    one = of(malloc=a, large=b, map=c) + Estimate(x)
    other = of(malloc=d, large=e, map=f) + Estimate(y)
    corners = [
        (x - y) + (a - d) * malloc + (b - e) * large + (c - f) * page
        for malloc, large, page in itertools.product(
            *((cost.low, cost.high) for cost in (MALLOC, LARGE, MAP))
        )
    ]
    noise = 1e-9 * max(one.seconds, other.seconds)
    assert one.surely_less(other) == (max(corners) < -noise)
    assert one.may_be_less(other) == (min(corners) < -noise)
    if other.seconds:
        ratios = [
            (x + a * malloc + b * large + c * page) / (y + d * malloc + e * large + f * page)
            for malloc, large, page in itertools.product(
                *((cost.low, cost.high) for cost in (MALLOC, LARGE, MAP))
            )
        ]
        assert largest_ratio(one, other) == pytest.approx(max(ratios), rel=1e-6)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"call": "map"}]', "[[[["])
def test_costs_that_are_not_a_list_of_costs_are_refused(text: str) -> None:
    with pytest.raises(ResultError, match="here: row 1: device_assumptions: not "):
        frame([row("a", device_assumptions=text)], "here")


def test_costs_outside_of_their_range_are_refused() -> None:
    cost = Cost("map", MIB, 3.0, 2.0, 4.0)
    with pytest.raises(ResultError, match="row 1: device_assumptions: not a range of costs"):
        frame([row("a", device_assumptions=to_text([(cost, 1)]))])


def test_no_mark_and_no_verdict_names_a_winner_that_the_costs_decide() -> None:
    rows = [estimated("calls", malloc=10), estimated("pages", map=10), estimated("both", map=99)]
    (case,) = cases(frame(rows))
    assert ranking.best(case.rows, SCHEMA["device_seconds"]) == ("pages", "calls")
    (table,) = tables.comparison(frame(rows), ["device_seconds"])
    marks = {one.allocator: one.cells[0].mark for one in table.rows}
    assert marks == {"calls": "best", "pages": "best", "both": "worst"}
    (verdict,) = [c for c in findings.verdict(case) if c.label.startswith("least device time")]
    assert verdict.sentence == (
        "least device time (estimate; it depends on the costs of device calls): pages and calls"
        " (pages takes less than calls only if cudaMalloc takes more than 40.0 us for 20.0 MiB"
        " (0.80x the estimate))"
    )
    assert "<b>pages</b>, <b>calls</b> <span" in html.render(rows)


def test_a_mean_over_workloads_has_the_range_of_its_ratios() -> None:
    made = {"base": {"malloc": 10}, "pages": {"map": 10}, "half": {"malloc": 5}}
    rows = [
        {**estimated(name, **calls), "workload": workload}
        for workload in ("one", "two")
        for name, calls in made.items()
    ]
    (table,) = tables.geometric_means(frame(rows), ["device_seconds"])
    cells = {one.allocator: one.cells[0] for one in table.rows}
    assert cells["base"].exact == "1.0"
    assert cells["half"].exact == "0.5"  # whatever a cudaMalloc costs
    exact = cells["pages"].exact
    assert exact.endswith("; within the assumed costs: 0.05x to 8.00x")
    assert cells["half"].mark == cells["pages"].mark == "best"


def test_a_range_of_seconds_has_two_digits_and_one_unit() -> None:
    assert units.seconds_range(1.7e-3, 15.3e-3) == "1.7-15 ms"
    assert units.seconds_range(1e-6, 1e-6) == "1.00 us"
    assert units.seconds_range(3e-9, 1234e-9) == "0.003-1.2 us"
    assert units.seconds_range(0.0, 120e-6) == "0-120 us"
