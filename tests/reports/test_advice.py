# SPDX-License-Identifier: Apache-2.0
"""Sentences of answers: which numbers they compare, and what they say at the boundaries."""

from typing import Any

import pandas as pd
import pytest

from allocbench.reports.advice import check, diff, fitting, held
from allocbench.reports.advice.recommending import consequence

GIB = 1 << 30


@pytest.mark.parametrize(
    ("peaks", "words"),
    [
        ((GIB, GIB, GIB), "a and b both reserve 1.00 GiB at their peaks."),
        ((GIB, GIB, 3 * GIB), "b reserves 3.00 GiB at its peak, 2.00 GiB more than a (1.00 GiB)."),
        ((3 * GIB, GIB, GIB), "b reserves 1.00 GiB at its peak, 2.00 GiB less than a (3.00 GiB)."),
        (
            (GIB, 4 * GIB, GIB),
            "a and b both reserve 1.00 GiB at their peaks. The program's requests change it by"
            " +3.00 GiB, the allocator's rules by -3.00 GiB.",
        ),
    ],
)
def test_a_difference_is_that_of_the_program_and_that_of_the_allocator(
    peaks: tuple[int, int, int], words: str
) -> None:
    assert diff.headline(("a", "b"), peaks) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"what": "rounding"}, "bytes that rounding adds"),
        (
            {"what": "free", "cause": "allocator"},
            "free bytes in segments, by the allocator's rules",
        ),
        ({"what": "free in small segments"}, "free bytes in segments of 2 MiB"),
        ({"kind": "activations", "place": "a.py:1", "module": "h.*"}, "activations: a.py:1 in h.*"),
        ({"caller": "b.py:2"}, "blocks (larger, called by b.py:2)"),
    ],
)
def test_a_part_of_a_difference_is_named(part: dict[str, Any], words: str) -> None:
    blank = {"what": "blocks", "cause": "program", "how": "larger", "change": -GIB}
    whole = blank | dict.fromkeys(("kind", "place", "module", "caller"), "") | part
    assert diff.what(whole) in (words, f"{words} (larger)")
    assert diff.most(whole) == f"The largest part is -1.00 GiB: {diff.what(whole)}."


def test_events_and_shares_of_two_traces() -> None:
    words = ("allocates", "frees")
    assert diff.first_change(("a", "b"), (None, 1200), 0, words) == (
        "The requests differ from the start: a allocates, b frees (event 1,200)."
    )
    assert "differ after 1 step: a allocates (event 0)" in diff.first_change(
        ("a", "b"), (0, None), 1, words
    )
    assert "agree: 25.0% of a, 50.0% of b." in diff.agreement(("a", "b"), 5, 20, 10)
    assert "agree: 100.0% of a, 0.0% of b." in diff.agreement(("a", "b"), 0, 0, 10)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("fits",), 0),
        (("unknown",), 2),
        (("fits", "unknown"), 2),
        (("unknown", "grows", "fits"), 1),
        (("fits_with_setting",), 1),
        (("too_big",), 1),
        (("fragmented",), 1),
    ],
)
def test_one_exit_code_for_several_answers(verdicts: tuple[check.Verdict, ...], code: int) -> None:
    assert check.exit_code([check.Answer("w", "d", one, "") for one in verdicts]) == code


def test_what_a_remedy_is_and_what_it_costs() -> None:
    setting = check.Remedy("setting", "caching:x", "replay", GIB, how="export A=b\nmore")
    assert (setting.words, setting.outcome) == ("export A=b", "needs 1.00 GiB (replay)")
    edit = check.Remedy("edit", "halve it", "estimate", 0, setting="A=b", costs="time")
    assert (edit.words, edit.outcome) == (
        "halve it, with A=b",
        "needs about 0 B (estimate); costs: time",
    )
    assert check.Remedy("batch", "--batch 4", "run", GIB).outcome == "reserves 1.00 GiB (run)"
    assert check.Remedy("card", "L4", "replay").outcome == "(replay)"


@pytest.mark.parametrize(
    ("fits", "default", "bound", "words"),
    [
        (False, (GIB, True), False, "does not fit it"),
        (True, None, False, "fits it with 2.00 GiB to spare"),
        (True, None, True, "leaves at most 2.00 GiB on it"),
        (True, (9 * GIB, False), False, "fits it with 2.00 GiB to spare; the default does not fit"),
        (True, (None, True), False, "fits it with 2.00 GiB to spare; the default fits too"),
        (
            True,
            (4 * GIB, True),
            False,
            "fits it with 2.00 GiB to spare; the default leaves 1.00 GiB",
        ),
    ],
)
def test_what_is_left_of_a_device(
    fits: bool, default: tuple[int | None, bool] | None, bound: bool, words: str
) -> None:
    assert consequence(3 * GIB, fits, 5 * GIB, "it", default, bound) == words
    assert consequence(3 * GIB, fits, None, "it", default, bound) == ""


@pytest.mark.parametrize(
    ("own", "least", "card", "words"),
    [
        (4, None, "L4", "p needs 4.00 GiB through caching: the smallest card is the L4."),
        (4, None, None, "p needs 4.00 GiB through caching: no card has so much."),
        (4, 4, "L4", "x does not need less."),
        (4, 3, "T4", "With x, it needs 3.00 GiB; the smallest card is the same."),
        (None, 3, "T4", "p fits no device through caching. With x, it needs 3.00 GiB"),
    ],
)
def test_a_setting_is_named_if_it_needs_less(
    own: float | None, least: float | None, card: str | None, words: str
) -> None:
    def row(gib: float | None) -> dict[str, Any]:
        need = None if gib is None else int(gib * GIB)
        return {"allocator": "caching", "min_capacity": need, "coverage": "", "card": card}

    assert words in fitting.answer("p", row(own), None if least is None else ("x", row(least)))
    part = fitting.answer("p", row(own) | {"coverage": "it ends early"}, None)
    assert ("the smallest card that can be enough is" in part) == (own is not None and bool(card))


BLOCKS = pd.DataFrame(
    {
        "workload": "w",
        "first": [0, 1, 4, 5],
        "last": [9, 3, 8, 6],
        "size": [100, 300, 200, 50],
        "site": [0, 1, 1, 0],
        "step": [0, 1, 2, 2],
    }
)
"""Alive after events 0 to 8: 100, 400, 400, 100, 300, 350, 300, 300, 100 bytes."""
SITES = pd.DataFrame({"workload": "w", "kind": ["weights", "work"], "line": ["a.py:1", ""]})


@pytest.mark.parametrize(
    ("failing", "begin"),
    [
        (None, "At the peak of the program (event 1, step 1), 400 B are in use: 300 B"),
        (4, "(event 4), 100 B are in use: 100 B (100.0%) weights. By line: 100 B"),
        (6, "(event 6, step 2), 350 B are in use: 200 B (57.1%) work and 150 B"),
        (10, ""),
    ],
)
def test_what_is_held_when_a_request_fails_or_at_the_peak(failing: int | None, begin: str) -> None:
    """Before the request of an event, the blocks are alive that were so after the event before."""
    assert held.peak(BLOCKS) == 1
    failures = pd.DataFrame(
        {"workload": ["w"], "device": ["d"], "allocator": ["a"], "event": [failing or 0]}
    ).assign(requested=7)
    details = {
        "program": BLOCKS,
        "sites": SITES,
        "failures": failures if failing else failures.iloc[:0],
    }
    found = held.sentence(details, "w", "d", "a")
    assert begin in found
    assert bool(found) is bool(begin)


@pytest.mark.parametrize(
    ("count", "need", "alone", "words"),
    [
        (1, 300, 100, "A private pool keeps 200 MiB that other requests cannot use"),
        (2, 192, 128, "2 private pools keep 64.0 MiB that other requests cannot use"),
    ],
)
def test_what_private_pools_keep(count: int, need: int, alone: int, words: str) -> None:
    told = check.pools(count, need << 20, alone << 20)
    assert told == f"{words}: without private pools, the program needs {alone} MiB."
