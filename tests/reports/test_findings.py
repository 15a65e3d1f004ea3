# SPDX-License-Identifier: Apache-2.0
"""Findings in words: the verdict on a case, and the two lines of advice."""

import re
from typing import Any

import pandas as pd
import pytest

from allocbench.reports.advice import findings, held
from allocbench.reports.advice.recommending import advise, consequence
from allocbench.reports.rows.details import none
from allocbench.reports.rows.ranking import cases
from allocbench.reports.rows.results import frame
from tests.result_rows import GIB, floor, row, sized


def test_the_verdict_has_the_numbers() -> None:
    rows = [sized("lean", 9, 50), sized("quick", 12, 25, device_seconds=0.002), floor()]
    (case,) = cases(frame(rows))
    assert findings.sentence(findings.verdict(case)) == (
        "Fastest: quick at 25.0 ns of host time per event under allocbench run"
        " (next: lean, 2.00x the time)."
        " Least device time (estimate): quick at 1-5 ms (100 device calls)."
    )


def test_a_single_call_is_a_call() -> None:
    (case,) = cases(frame([sized("quick", 12, 25, device_calls=1)]))
    assert "(1 device call)" in findings.sentence(findings.verdict(case))


def test_the_verdict_falls_back_to_what_was_measured() -> None:
    untimed: dict[str, Any] = {"seconds_per_event_steady": None, "seconds_per_event_cold": None}
    rows = [
        row("a", min_capacity=None, device_seconds=None, **untimed),
        row("b", min_capacity=None, device_seconds=None, **untimed),
    ]
    (case,) = cases(frame(rows))
    assert findings.sentence(findings.verdict(case)) == (
        "Fastest (alloc): a and b at 30.0 ns of host time per call under allocbench run"
        " (no clear difference)."
        " Equal in every counted metric: a and b."
    )


def test_rows_keep_the_advice() -> None:
    rows = [
        sized("caching", 82, 50, failures=2, min_capacity=82 * GIB),
        sized("caching:conf=expandable_segments:True", 76, 50),
        sized("slab", 70, 50),
    ]
    made = advise(frame(rows), device="the card")
    assert made.lines[0] == (
        "Best setting: caching:conf=expandable_segments:True. It needs 76.0 GiB, 7.3% less than the"
        " default (82.0 GiB), and fits the card with 4.00 GiB to spare; the default does not fit."
        " Smallest card: RTX 4070 12GB, as for the default. Device time: 2-10 us per event."
    )
    assert made.lines[1].startswith("Best allocator: PyTorch's own, with this setting.")
    assert "slab" in made.lines[1]
    (case,) = cases(frame([one | made.columns for one in rows]))
    kept = findings.advice(case)
    assert (kept.setting, kept.allocator, kept.lines) == (made.setting, "caching", made.lines)
    (setting, allocator) = findings.answer(case)
    assert setting == (made.setting, "76.0 GiB", "RTX 4070 12GB")
    assert allocator[0].startswith("PyTorch's own")
    (bare,) = cases(frame(rows))
    assert findings.advice(bare) == findings.Told()
    assert findings.answer(bare) == []


@pytest.mark.parametrize(
    ("default", "setting", "words"),
    [
        (82, 76, "7.3% less than the default (82.0 GiB)"),
        (70, 76, "8.6% more than the default (70.0 GiB)"),
        (76, 76, "the same as the default"),
    ],
)
def test_a_setting_is_compared_with_the_default(default: int, setting: int, words: str) -> None:
    fails = sized("caching", default, 50, failures=1, min_capacity=default * GIB)
    rows = [fails, sized("caching:conf=expandable_segments:True", setting, 50)]
    assert f"It needs {setting}.0 GiB, {words}" in advise(frame(rows), device="the card").lines[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "1.25x the max load. Of these, 1.00 GiB are not allocated; rounding takes 12.5% of"),
        ({"stranded": None}, "1.25x the max load."),
        ({"internal_fragmentation": None}, "1.25x the max load."),
    ],
)
def test_why_peaks_differ(changes: dict[str, Any], words: str) -> None:
    """8 GiB are requested, and 10 GiB and 20 GiB are reserved."""
    rows = [row("lean", **changes), row("greedy", peak_reserved=20 * GIB)]
    (case,) = cases(frame(rows))
    told = findings.verdict_why(case)
    assert f"lean holds 10.0 GiB at its peak, {words}" in told
    assert "greedy holds 20.0 GiB at its peak, 2.50x the max load." in told
    (alone,) = cases(frame(rows[:1]))
    assert findings.verdict_why(alone) == ""


def test_a_lead_within_the_noise_is_no_lead() -> None:
    rows = [
        row(name, seconds_per_event_steady=least, seconds_per_event_steady_max=most)
        for name, least, most in (("a", 30e-9, 31e-9), ("b", 30.9e-9, 33e-9), ("c", 90e-9, 95e-9))
    ]
    (case,) = cases(frame(rows))
    (fastest,) = [one for one in findings.verdict(case) if one.label == "fastest"]
    assert fastest.allocators == ("a", "b")
    assert fastest.number == "at 30.0 ns to 30.9 ns of host time per event under allocbench run"
    assert fastest.context == "no clear difference"
    noisy = {**rows[2], "seconds_per_event_steady_max": 1e-6}
    (case,) = cases(frame([*rows[:2], {**noisy, "seconds_per_event_steady": 30.95e-9}]))
    (fastest,) = [one for one in findings.verdict(case) if one.label == "fastest"]
    assert fastest.context == "no clear difference between a and c"
    (case,) = cases(frame([{**one, "passes": 3} for one in rows]))
    (fastest,) = [one for one in findings.verdict(case) if one.label == "fastest"]
    assert fastest.allocators == ("a", "b", "c")
    assert fastest.context == "too few passes to tell them apart"


def test_a_place_that_most_allocators_share_is_undecided() -> None:
    rows = [
        row(name, seconds_per_event_steady=30e-9 + n * 1e-9, seconds_per_event_steady_max=90e-9)
        for n, name in enumerate("abcd")
    ]
    slow = row("e", seconds_per_event_steady=100e-9, seconds_per_event_steady_max=101e-9)
    (case,) = cases(frame([*rows, slow]))
    (fastest,) = [one for one in findings.verdict(case) if one.label == "fastest"]
    assert fastest.sentence == (
        "fastest: undecided, 4 of 5 allocators do not clearly differ"
        " (30.0 ns to 33.0 ns of host time per event under allocbench run)"
    )


@pytest.mark.parametrize(
    ("need", "fits", "default", "numbers", "words"),
    [
        (5, True, None, ["3.00"], "fits"),
        (5, True, (7, True), ["3.00", "1.00"], "leaves"),
        (5, True, (9, False), ["3.00"], "the default does not fit"),
        (5, True, (None, True), ["3.00"], "the default fits too"),
        (9, False, (7, True), [], "does not fit the card"),
    ],
)
def test_what_is_left_on_a_card_of_8_gib(
    need: int, fits: bool, default: tuple[int | None, bool] | None, numbers: list[str], words: str
) -> None:
    least = default and (default[0] and default[0] * GIB, default[1])
    told = consequence(need * GIB, fits, 8 * GIB, "the card", least)
    assert re.findall(r"([\d.]+) GiB", told) == numbers
    assert words in told
    assert consequence(need * GIB, fits, None, "the card", least) == ""


def test_what_is_held_is_that_before_the_request_that_fails() -> None:
    sites = {"line": "", "operator": "", "module": "", "stack": "", "stream": 0, "derived": False}
    kinds = [{**sites, "kind": "parameters"}, {**sites, "kind": "gradients", "line": "a.py:3 f"}]
    blocks = [(0, 9, 600, 0, 0), (1, 4, 300, 1, 1), (5, 9, 200, 1, 1), (6, 9, 900, 1, 1)]
    columns = ("first", "last", "size", "step", "site")
    details = dict(none())
    details["program"] = pd.DataFrame(blocks, columns=columns).assign(workload="train")
    details["sites"] = pd.DataFrame(kinds).assign(workload="train")
    at_peak = held.sentence(details, "train", "sim:1KiB", "bfc")
    assert at_peak == (
        "At the peak of the program (event 6, step 1), 1.66 KiB are in use: 1.07 KiB (64.7%)"
        " gradients and 600 B (35.3%) parameters. By line: 1.07 KiB (64.7%) a.py:3 f."
    )
    run = {"workload": "train", "device": "sim:1KiB", "allocator": "bfc"}
    details["failures"] = pd.DataFrame([{**run, "event": 2, "requested": 500}])
    assert held.sentence(details, "train", "sim:1KiB", "bfc").startswith(
        "When a request for 500 B fails (event 2, step 1), 900 B are in use: 600 B (66.7%)"
    )
    assert held.sentence(none(), "train", "sim:1KiB", "bfc") == ""
