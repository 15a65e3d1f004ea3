# SPDX-License-Identifier: Apache-2.0
"""Sentences of answers: which numbers they compare, and what they say at the boundaries."""

from typing import Any

import pandas as pd
import pytest

from allocbench.reports.advice import diff, findings, fitting
from allocbench.reports.advice.recommending import consequence

GIB = 1 << 30


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
    assert findings.peak(BLOCKS) == 1
    failures = pd.DataFrame(
        {"workload": ["w"], "device": ["d"], "allocator": ["a"], "event": [failing or 0]}
    ).assign(requested=7)
    details = {
        "program": BLOCKS,
        "sites": SITES,
        "failures": failures if failing else failures.iloc[:0],
    }
    found = findings.held(details, "w", "d", "a")
    assert begin in found
    assert bool(found) is bool(begin)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"pins": 1, "place": "stretch"}, "1 block of 2.00 GiB were in the way, in the range with"),
        ({"pins": 3, "place": "release"}, "3 blocks of 2.00 GiB were in the way, in the segments"),
        ({"pins": 0, "largest_gap": 3 * GIB}, "A gap was large enough, but the strategy does not"),
        ({"pins": 0}, "No block was in the way: free memory was not released or merged."),
    ],
)
def test_the_first_failed_request_in_words(changes: dict[str, Any], end: str) -> None:
    row: dict[str, Any] = {
        "event": 1234,
        "requested": 3 * GIB,
        "reserved": 9 * GIB,
        "allocated": 4 * GIB,
    }
    row |= {"capacity": 10 * GIB, "largest_gap": 2 * GIB, "pinned_bytes": 2 * GIB, "place": ""}
    found = findings.failed_request(row | changes)
    gap = changes.get("largest_gap", 2 * GIB) / GIB
    assert found.startswith(
        "Event 1,234 requested 3.00 GiB. The allocator held 9.00 GiB of 10.0 GiB, of which 5.00 GiB"
        f" were free; the largest gap was {gap:.2f} GiB. {end}"
    )
