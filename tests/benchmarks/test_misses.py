# SPDX-License-Identifier: Apache-2.0
"""The program that measures dependent accesses to memory."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "misses.cpp"


@pytest.fixture(scope="module")
def misses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("misses") / "misses"
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    subprocess.run([*compiler, "-O2", "-std=c++20", str(SOURCE), "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize("pages", ["huge", "small"])
def test_misses_visits_all_lines_and_prints_a_time(misses: Path, pages: str) -> None:
    """It fails if the cycle does not return to its begin."""
    done = subprocess.run([misses, "1", pages], capture_output=True, text=True, check=True)
    found = re.fullmatch(r"ns_per_access min=([0-9.e+-]+)\n", done.stdout)
    assert found
    assert float(found[1]) > 0


@pytest.mark.parametrize("given", [[], ["0", "huge"], ["1", "other"]])
def test_misses_refuses_other_arguments(misses: Path, given: list[str]) -> None:
    done = subprocess.run([misses, *given], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: misses MIB huge|small\n")
