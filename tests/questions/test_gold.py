# SPDX-License-Identifier: Apache-2.0
"""The answers to all questions about small inputs are as they were frozen."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from allocbench import api
from allocbench.questions import (
    error_text,
    growth,
    hazards,
    holding,
    league,
    occupancy,
    peaks,
    repetitions,
)
from allocbench.questions.failure import first_failure
from allocbench.replays.runner import Runner
from tests import drawn_calls
from tests.answer_inputs import CASES, chunks
from tests.gold import Gold, facts, outcome

_SPECS = ["caching", "bfc", "naive"]
_TIGHT = [CASES[n] for n in (0, 1, 2, 4, 11, 12, 13, 15, 16, 19, 23)]


def _recommend(name: str, device: str) -> Any:
    rows = api.recommend(name, device, budget=6, orders=2)
    return [facts(rows), facts(rows.attrs["advice"]), facts(rows.attrs["confidence"])]


def _trace(name: str, device: str) -> Any:
    """What is known of a trace beside the answers to the questions."""
    trace, where = api._case(name, device)
    run = Runner(trace, where)
    held = holding.holders(trace)
    return {
        "steps": [facts(one) for one in repetitions.all_steps(trace)],
        "leak": facts(growth.leak_of(trace)),
        "reserve": facts(growth.growing_reserve(trace, "caching", where)),
        "hazards": facts(hazards.growing(run, _SPECS, where)),
        "holders": facts(held),
        "kinds": facts(holding.by_kind(held)),
        "peak": facts(peaks.peak_of(trace)),
        "digest": league.digest(trace),
    }


def _failure(name: str, device: str) -> Any:
    found = first_failure(*_case(name, device))
    return found and {
        field: getattr(found, field)
        for field in (
            "event",
            "step",
            "operator",
            "requested",
            "live",
            "allocated",
            "reserved",
            "largest_free",
            "pins",
            "in_one_stretch",
            "address",
        )
    }


def _case(name: str, device: str) -> tuple[Any, str, str]:
    trace, where = api._case(name, device)
    return trace, "caching", where


_QUESTIONS: Mapping[str, tuple[Callable[..., Any], Sequence[tuple[str, str]], int]] = {
    "check": (lambda *case: api.check(*case, everything=True), CASES, 5),
    "explain": (lambda *case: api.explain(case[0], device=case[1]), CASES, 8),
    "failure": (_failure, CASES, 12),
    "fit": (lambda *case: api.fit(case[0], _SPECS, case[1], time_limit=0), CASES[::2], 6),
    "tune": (lambda *case: api.tune(case[0], device=case[1], budget=8), _TIGHT, 4),
    "recommend": (_recommend, _TIGHT, 2),
    "trace": (_trace, CASES, 8),
    "whatif": (lambda *case: api.whatif(case[0], device=case[1]), CASES[1:12], 4),
    "diff": (api.diff, [(old, new) for (old, _), (new, _) in pairwise(CASES)], 8),
}
_GROUPS = [
    (f"{name}_{n}", answer, cases)
    for name, (answer, given, size) in _QUESTIONS.items()
    for n, cases in enumerate(chunks(given, size))
]


@pytest.mark.parametrize(("group", "answer", "cases"), _GROUPS, ids=[one[0] for one in _GROUPS])
def test_questions(
    group: str,
    answer: Callable[..., Any],
    cases: Sequence[tuple[str, str]],
    gold: Gold,
    in_inputs: Path,
) -> None:
    gold(f"question_{group}", {" ".join(case): facts(outcome(answer, *case)) for case in cases})


@pytest.mark.parametrize("module", [error_text, growth, occupancy])
def test_of_drawn_arguments(module: Any, gold: Gold) -> None:
    name = module.__name__.split(".")[-1]
    gold(f"drawn_{name}", drawn_calls.results(module, 240))
