# SPDX-License-Identifier: Apache-2.0
"""What commands say where numbers are equal, and just before and after."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from allocbench.base.error_text import Amount, HeldBuffer, MemoryDump
from allocbench.commands import compare, error_answer, fit, vary
from allocbench.questions.vary import Largest, Probe, Variation
from allocbench.replays import PASSES, PASSES_OF_LONG
from tests.commands import EVENTS, folder, output

__all__ = ["folder"]  # the fixture, by its import
GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "fits", "need", "words"),
    [
        (10, True, 7, "yes, 3.00 GiB to spare"),
        (8, True, 8, "yes, 0 B to spare"),
        (8, False, None, "no"),
        (8, False, 8, "no"),  # it fits smaller ones
        (8, False, 7, "no"),
        (7, False, 12, "no, 5.00 GiB too small"),
    ],
)
def test_whether_a_card_is_enough(free: int, fits: bool, need: int | None, words: str) -> None:
    row = {"min_capacity": None if need is None else need * GIB}
    assert fit._verdict(free * GIB, fits, row) == words


@pytest.mark.parametrize(
    ("largest", "words"),
    [
        (None, "batch=1000, the smallest, does not fit"),
        (1000, "The largest batch that fits is 1000; 2000 runs out of memory"),
        (3000, "batch=3000, the largest requested, fits"),
    ],
)
@pytest.mark.parametrize("device", [None, "null:l4"])
def test_the_largest_value(
    device: str | None, largest: int | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [1000, 2000, 3000]
    falls = largest == 3000
    needs = [(4000 - n if falls else n) << 20 for n in values]
    fits = [n <= (largest or 0) for n in values]
    found = Largest(largest, [*map(Probe, values, fits, needs)])
    asked: Any = SimpleNamespace(settings=SimpleNamespace(device=device))
    vary._print_card(asked, Variation("batch", [int(str(n)) for n in values]), found, "sim:8GiB")
    said = " ".join(capsys.readouterr().out.split())
    room = "; PyTorch can use 8.00 GiB" if device else ""
    assert f"{words}{room}." in said
    assert f"batch on {device or 'the GPU of this machine'}" in said
    assert ("Memory use does not always grow" in said) is falls
    rows = vary._rows(found, None, asked)
    assert rows["largest"].tolist() == [n == largest for n in values]


def test_the_largest_kind_of_memory_comes_first() -> None:
    kinds = [HeldBuffer(Amount(n, n), name) for name, n in (("a", 3), ("b", 9), ("c", 5))]
    answer = error_answer.as_check("t", MemoryDump("a dump", "then", kinds, ()), "l4")
    assert [(one.kind, one.bytes) for one in answer.holders] == [("b", 9), ("c", 5), ("a", 3)]
    assert (answer.verdict, answer.bound, answer.when) == ("unknown", True, "then")


@pytest.mark.parametrize("long", [len(EVENTS) - 1, len(EVENTS), len(EVENTS) + 1])
def test_a_long_trace_is_timed_less_often(long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "LONG", long)
    line = "compare good.csv --allocators naive --no-min-capacity --json -"
    (row,) = json.loads(output(line))
    assert row["passes"] == (PASSES if len(EVENTS) <= long else PASSES_OF_LONG)
