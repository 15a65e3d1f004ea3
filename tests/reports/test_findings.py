# SPDX-License-Identifier: Apache-2.0
"""Findings in words: the verdict on a case, and the two lines of advice."""

from allocbench.reports.advice import findings
from allocbench.reports.advice.recommending import advise
from allocbench.reports.rows.ranking import cases
from allocbench.reports.rows.results import frame
from tests.result_rows import GIB, row, sized


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
