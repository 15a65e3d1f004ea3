# SPDX-License-Identifier: Apache-2.0
"""`fit --vary`: the search, compared with trying every value."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocbench.errors import UsageError
from allocbench.programs.program import ProgramWorkload
from allocbench.questions.check import smaller
from allocbench.questions.vary import (
    Between,
    Probe,
    below_own,
    between,
    doubling,
    placed,
    search,
    variation,
)
from allocbench.reports.advice.check import Answer, Remedy
from tests.commands import folder, run
from tests.commands.test_record import stand_in
from tests.programs.test_program_workloads import programs

__all__ = ["folder", "programs", "stand_in"]  # the fixtures, by their imports


@given(
    base=st.integers(0, 1000),
    slope=st.integers(1, 100),
    segment=st.sampled_from([1, 20, 500]),
    capacity=st.integers(1, 30_000),
    first=st.integers(1, 100),
    count=st.integers(2, 300),
    step=st.integers(1, 8),
)
def test_the_largest_is_exact_and_found_with_few_runs(
    base: int, slope: int, segment: int, capacity: int, first: int, count: int, step: int
) -> None:
    values = range(first, first + count * step, step)
    runs: list[int] = []

    def need(value: int) -> int:
        return (base + slope * value) // segment * segment

    def probe(value: int) -> Probe:
        runs.append(value)
        fits = need(value) <= capacity
        return Probe(value, fits, need(value) if fits else None)

    found = search(values, probe, capacity)
    assert found.largest == max((v for v in values if need(v) <= capacity), default=None)
    assert found.monotone
    assert len(runs) == len(set(runs)) <= 2 * count.bit_length() + 5
    assert [one.value for one in found.probes] == sorted(runs)
    if found.largest not in (None, values[-1]):  # both sides were run
        assert {found.largest, found.largest + step} <= {*runs}


def test_a_need_that_shrinks_is_seen() -> None:
    def probe(value: int) -> Probe:
        fits = value <= 10 or value == 55  # halfway between the answer and the end
        return Probe(value, fits, value if fits else None)

    assert not search(range(1, 101), probe, None).monotone

    def shrinking(value: int) -> Probe:
        return Probe(value, value <= 10, 100 - value if value <= 10 else None)

    assert not search(range(1, 101), shrinking, 1000).monotone


def test_valid_variations() -> None:
    assert list(variation("batch=8..11").values) == [8, 9, 10, 11]
    assert list(variation("batch=8..20:4").values) == [8, 12, 16, 20]
    varied = variation("n=3,7")
    assert (varied.name, varied.values) == ("n", [3, 7])
    program = ProgramWorkload(("python", "a.py", "--n={n}", '{"n": {n}}'))
    assert varied.of(program, 7).command == ("python", "a.py", "--n=7", '{"n": 7}')
    for wrong in ("batch", "batch=8", "batch=9..8", "batch=8..9:0", "batch=3,2", "batch=a..b"):
        with pytest.raises(UsageError, match="--vary"):
            variation(wrong)


def test_the_value_of_an_option_in_the_command_is_its_own() -> None:
    for words in (("--batch-size", "16"), ("--batch-size=16",), ("--batch_size", "16")):
        program = ProgramWorkload(("python", "a.py", *words, "--n", "3"))
        with_hole, own = placed(program, "batch_size")
        assert own == 16
        varied = variation("batch_size=4..64:4")
        assert varied.of(with_hole, 16) == program
        again, below, whole = below_own(program, "batch_size=4..64:4")
        assert (again, whole, list(below.values)) == (with_hole, program, [4, 8, 12])
    large = ProgramWorkload(("a.py", "--n=100"))
    assert list(below_own(large, "n")[1].values) == [1, *range(3, 100, 3)]
    hole = ProgramWorkload(("a.py", "{n}"))
    with_hole, below, whole = below_own(hole, "n=2..5")
    assert (list(below.values), whole.command) == ([2, 3, 4], ("a.py", "5"))
    for command, text in (
        (("a.py", "--n", "x"), "n"),
        (("a.py", "{n}"), "n"),
        (("a.py",), "n=1..3"),
    ):
        with pytest.raises(UsageError, match="--vary n"):
            below_own(ProgramWorkload(command), text)


@given(st.integers(0, 120), st.integers(1, 100))
def test_a_quick_search_knows_that_more_does_not_fit(most: int, count: int) -> None:
    values = range(1, count + 1)
    runs: list[int] = []

    def probe(value: int) -> Probe:
        runs.append(value)
        return Probe(value, value <= most, value if value <= most else None)

    found = search(values, probe, most, quick=True)
    assert found.largest == (min(most, count) or None)
    assert len(runs) == len(set(runs)) <= 2 * count.bit_length() + 2


def test_values_are_doubled_and_cards_lie_between_runs() -> None:
    assert doubling(range(8, 257)) == [8, 16, 32, 64, 128, 256]
    assert doubling([3, 4, 5, 100]) == [3, 100]
    runs = [(8, True, 100), (16, True, 180), (32, False, 340)]
    assert between("card", 200, range(8, 33), runs) == Between("card", 16, 32, 18)
    assert between("card", 50, range(8, 33), [(8, False, 100)]) == Between("card", None, 8, None)
    assert between("card", 500, range(8, 9), runs[:2]) == Between("card", 16, None, None)


PROGRAM = """
import sys, torch
size = int(sys.argv[1]) << 20
torch.alloc(size)
if size > 37 << 20:
    torch.remember(0, action="oom", addr=0, size=size)
    sys.exit(1)
"""


def test_fit_finds_the_largest_on_the_gpu_of_this_machine() -> None:
    Path("train.py").write_text(PROGRAM)
    line = f"fit --vary n=1..100 --json - -- {sys.executable} train.py {{n}}"
    done = run(line)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    (largest,) = (row for row in rows if row["largest"])
    assert (largest["value"], largest["fits"], largest["monotone"]) == (37, True, True)
    assert {row["value"]: row["fits"] for row in rows}[38] is False
    shown = run(line.replace("--json -", ""))
    assert "The largest n that fits is 37; 38 runs out of memory." in shown.stdout


def test_check_finds_a_smaller_value_by_runs() -> None:
    Path("train.py").write_text(PROGRAM)
    program = ProgramWorkload((sys.executable, "train.py", "{n}"))
    answer = Answer("train", "a GPU", "too_big", "", remedies=(Remedy("card", "larger", "replay"),))
    probes: list[Probe] = []
    found = smaller(program, variation("n=1..50"), "sim:64MiB", answer, probes.append)
    assert found.remedies == (Remedy("batch", "n=37", "run", 38 << 20), *answer.remedies)
    assert {probe.value: probe.fits for probe in probes}[38] is False


def test_a_program_that_fails_tells_its_last_line() -> None:
    Path("train.py").write_text("raise ValueError('no such flag')\n")
    done = run(f"fit --vary n=1..9 -- {sys.executable} train.py {{n}}")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].endswith("exit code 1; ValueError: no such flag")
