# SPDX-License-Identifier: Apache-2.0
"""Findings in words: the verdict on a case, and the two lines of advice."""

from typing import Any

import pytest

from allocbench.reports.advice import findings
from allocbench.reports.advice.recommending import advise
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
