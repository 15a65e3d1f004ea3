# SPDX-License-Identifier: Apache-2.0
"""Findings in words: the verdict on a case, and the two lines of advice."""

from allocbench.reports.advice import findings
from allocbench.reports.rows.ranking import cases
from allocbench.reports.rows.results import frame
from tests.result_rows import row


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
