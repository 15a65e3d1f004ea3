# SPDX-License-Identifier: Apache-2.0
"""Commands as a user runs them, in a folder with one good trace and the bad ones."""

import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import allocbench
from allocbench.cli import app
from allocbench.workloads import ALLOC, FREE, Provenance, write
from tests.traces import Event, make

QUICK = "--time 0 --no-min-capacity"
EVENTS: list[Event] = [
    (ALLOC, 0, 4096),
    (ALLOC, 1, 100),
    (FREE, 0, 0),
    (ALLOC, 2, 3 << 20),
    (ALLOC, 0, 1),
    (FREE, 1, 0),
    (FREE, 2, 0),
    (FREE, 0, 0),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate working folder with one good trace and the bad ones."""
    monkeypatch.setenv("PYTHONPATH", str(Path(allocbench.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    write(make(EVENTS), "good.csv")
    write(make(EVENTS, provenance=Provenance(name="made", kind="synthetic")), "good.parquet")
    Path("text.csv").write_text("hello\n")
    Path("broken.csv").write_text("op,id,size\na,0,4096\na,x,7q\n")
    Path("dead.csv").write_text("op,id,size\na,0,4096\nf,0,\nf,0,\n")
    Path("cut.parquet").write_bytes(Path("good.parquet").read_bytes()[:200])
    return tmp_path


def run(line: str) -> Result:
    return CliRunner().invoke(app, shlex.split(line), prog_name="allocbench")


def output(line: str) -> str:
    result = run(line)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def error(line: str) -> str:
    """The single line on standard error of a command that has no other output."""
    before = sorted(Path().rglob("*"))
    result = run(line)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    return result.stderr


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "allocbench", *arguments]
