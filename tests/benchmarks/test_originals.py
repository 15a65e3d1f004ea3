# SPDX-License-Identifier: Apache-2.0
"""The table of strategies beside originals and the reference loop, and counts of instructions."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from allocbench.workloads import ALLOC, FREE
from benchmarks import instructions
from benchmarks.originals import Program, build_minimal, build_reference, lines, write_csv
from tests.traces import make

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[Program]:
    return build_reference(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def minimal(tmp_path_factory: pytest.TempPathFactory) -> list[Program]:
    return build_minimal(tmp_path_factory.mktemp("minimal"))


def csv(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("op,id,size\n" + text)
    return path


def test_the_reference_loop_replays_a_trace_with_each_lock(
    reference: list[Program], tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    trace = instructions.load("random:allocs=500")
    assert write_csv(trace, path) == len(trace.op) == len(path.read_text().splitlines()) - 1
    assert [program.name for program in reference] == [
        "reference loop, `std::mutex`",
        "reference loop, spin lock",
    ]
    for program in reference:
        assert program.time(path, 3) > 0


@pytest.mark.parametrize(
    "text", ["a,0,1\nf,0,\nf,0,\n", "f,3,\n"], ids=["freed twice", "never allocated"]
)
def test_the_programs_check_what_is_freed(
    reference: list[Program], minimal: list[Program], tmp_path: Path, text: str
) -> None:
    for program in [reference[0], *minimal]:
        with pytest.raises(subprocess.CalledProcessError):
            program.time(csv(tmp_path, text), 1)


def test_the_minimal_programs_replay_a_trace_of_any_sizes(
    minimal: list[Program], tmp_path: Path
) -> None:
    sizes = (1, 256, 257, 2048, 2049, 1 << 20, (1 << 20) + 1, 1 << 40)
    both = [f"a,{n},{size}\n" for n, size in enumerate(sizes)] + [f"f,{n},\n" for n in (2, 0, 1)]
    assert [program.of for program in minimal] == ["tlsf", "buddy", "slab"]
    for program in minimal:
        assert program.time(csv(tmp_path, "".join(both)), 3) > 0


def test_the_reference_loop_refuses_another_file(reference: list[Program], tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("id,size\n")
    done = subprocess.run(reference[0].line(path, 1), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"{path}: not a trace with the heading op,id,size\n"


def test_allocs_have_an_id_each(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    events = write_csv(make([(ALLOC, 0, 10), (FREE, 0, 0), (ALLOC, 0, 20)]), path)
    assert path.read_text() == "op,id,size\na,1,10\nf,1,\na,3,20\n"
    assert events == 3


def test_the_table_has_times_ratios_and_instructions() -> None:
    tf = Program("original 1, `tf`", "tf {trace}", "", "bfc")
    less = Program("minimal tlsf", "floors {trace}", "", "tlsf")
    times = {
        "one": {tf.name: 100.0, "loop": 10.0, less.name: 20.0, "bfc": 40.0, "tlsf": 25.0},
        "two": {tf.name: 80.0, "loop": 20.0, less.name: 60.0, "bfc": 20.0, "tlsf": 30.0},
    }
    counts = {"one": {"loop": 100.0, "bfc": 500.0, "tlsf": 250.0}, "two": {}}
    assert list(lines(times, counts, [tf], "loop", [less])) == [
        "| | one | one, instr. | two | two, instr. |",
        "|---|--:|--:|--:|--:|",
        "| original 1, `tf` | 100.0 | n/a | 80.0 | n/a |",
        "| loop | 10.0 | 100 | 20.0 | n/a |",
        "| minimal tlsf | 20.0 | n/a | 60.0 | n/a |",
        "| `bfc` | 40.0 | 500 | 20.0 | n/a |",
        "| `bfc` / original 1, `tf` | 0.40 | n/a | 0.25 | n/a |",
        "| `tlsf` | 25.0 | 250 | 30.0 | n/a |",
        "| `tlsf` / loop | 2.50 | 2.50 | 1.50 | n/a |",
        "| `tlsf` / minimal tlsf | 1.25 | n/a | 0.50 | n/a |",
    ]
    assert (
        next(iter(lines(times, {"one": {}, "two": {}}, [tf], "loop", [less]))) == "| | one | two |"
    )


def test_the_command_prints_the_table_and_one_line_for_an_error(tmp_path: Path) -> None:
    original = shlex.join([sys.executable, "-c", "print('ns=1234.5')", "{trace}"])
    command = [sys.executable, "-m", "benchmarks.originals", "random:allocs=100"]
    command += ["--no-instructions", "--rounds", "1", "--passes", "1"]

    def run(pattern: str) -> subprocess.CompletedProcess[str]:
        line = [*command, "--original", "bfc", original, pattern]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)

    shown = run("ns=([0-9.]+)").stdout.splitlines()
    assert shown[0] == "| | random:allocs=100 |"
    assert re.fullmatch(r"\| original 1, `python[0-9.]*` \| 1234.5 \|", shown[2])
    rows = [line.split(" | ")[0].removeprefix("| ") for line in shown[3:]]
    reference = "reference loop, `std::mutex`"
    assert rows[:2] == [reference, "reference loop, spin lock"]
    assert rows[2:5] == ["minimal tlsf", "minimal buddy", "minimal slab"]
    assert rows[5:7] == ["`bfc`", f"`bfc` / {shown[2].split(' | ')[0].removeprefix('| ')}"]
    assert rows[7:9] == ["`bump`", f"`bump` / {reference}"]
    done = run("nothing=([0-9.]+)")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("nothing in its output matches 'nothing=([0-9.]+)'\n")


def test_instructions_are_counted_without_those_of_the_interpreter() -> None:
    counter = instructions.available_counter()
    if counter is None:
        why = "neither perf stat nor valgrind can count instructions here"
        if os.environ.get("CI"):
            pytest.fail(f"{why}, though this is a CI run: .ci/run installs valgrind")
        pytest.skip(why)
    passes = {"perf": 5000, "valgrind": 20}[counter]
    counted = instructions.per_event(counter, "bump", "random:allocs=300", 600, passes)
    assert 50 < counted < 1000  # the start of Python would add thousands


def test_a_difference_of_two_counts_leaves_out_what_both_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def count(counter: str, line: list[str], inside: str | None = None) -> int:
        seen.append(line)
        return 1_000_000 + 250 * int(line[-1])

    monkeypatch.setattr(instructions, "count", count)
    assert instructions.difference("perf", lambda passes: ["it", str(passes)], 40) == 250
    assert seen == [["it", "0"], ["it", "40"]]


def test_without_the_function_to_count_in_valgrind_counts_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def count(counter: str, line: list[str], inside: str | None = None) -> int:
        if inside:
            raise ValueError("no number of instructions")
        return 10_000 + 600 * int(line[-1])

    monkeypatch.setattr(instructions, "count", count)
    assert instructions.per_event("valgrind", "bump", "any", 6, 20) == 100
