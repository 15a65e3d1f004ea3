# SPDX-License-Identifier: Apache-2.0
"""The tables of throughput with threads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.threads import LOCKS, build, sections

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("threads"))


@pytest.mark.parametrize("lock", list(LOCKS))
def test_each_lock_lets_all_threads_in(program: Path, lock: str) -> None:
    per_second, slowest = sections(program, lock, 3, 0.05)
    assert per_second > 0
    assert 0 <= slowest <= 1


@pytest.mark.parametrize(
    "given", [["mutex", "0", "8", "1"], ["mutex", "1", "7", "1"], ["none", "2", "8", "1"], []]
)
def test_other_arguments_are_refused(program: Path, given: list[str]) -> None:
    done = subprocess.run([program, *given], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_the_command_prints_two_tables_and_one_line_for_an_error() -> None:
    line = [sys.executable, "-m", "benchmarks.threads", "--runs", "1", "--events", "20000"]
    line += ["--seconds", "0.02"]
    done = subprocess.run([*line, "bump"], cwd=ROOT, capture_output=True, text=True, check=True)
    rows = done.stdout.splitlines()
    assert rows[0].startswith("| | 1 thread, 1000 blocks | 8 threads, 125 blocks each | ratio |")
    assert re.fullmatch(r"\| `bump`( \| [0-9.]+){5} \|", rows[2])
    assert rows[4] == "| | 1 thread | 8 threads | ratio | slowest thread / mean |"
    assert [row.split(" | ")[0] for row in rows[6:]] == [f"| {words}" for words in LOCKS.values()]
    done = subprocess.run([*line, "other"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("\n")) == (1, 2)
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
