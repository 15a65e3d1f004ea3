# SPDX-License-Identifier: Apache-2.0
"""allocbench.cli: every kind of wrong command, each without a traceback."""

import errno
import json
import re
import subprocess
from pathlib import Path

import pytest

from allocbench.inputs import traces
from allocbench.workloads import Provenance, write
from tests.commands import EVENTS, QUICK, error, folder, output, python
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import


@pytest.mark.parametrize(
    "line",
    [
        "compare good.csv --json {}",
        "compare good.csv --html {}",
        "replay good.csv --allocator bfc --json {}",
        "replay good.csv --allocator bfc --placements {}",
        "replay good.csv --allocator bfc --snapshot {}",
        "replay good.csv --allocator bfc --perfetto {}",
        "convert good.csv -o {}",
    ],
)
@pytest.mark.parametrize("path", ["nowhere/new.csv", "good.csv/new.csv", "folder.csv"])
def test_an_unwritable_output_is_an_error_before_any_work(line: str, path: str) -> None:
    Path("folder.csv").mkdir()
    assert f"error: {path}: cannot write: " in error(line.format(path))


def test_a_full_disk_is_an_error() -> None:
    line = f"replay good.csv --allocator bfc {QUICK}"
    assert "/dev/full: cannot write" in error(f"{line} --placements /dev/full")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "Resource temporarily"),
        (
            OSError(errno.EROFS, "Read-only file system", "trace.csv"),
            "trace.csv: Read-only file system",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
            "No u",
        ),
        (MemoryError("Unable to allocate 8.00 TiB"), "not enough memory: Unable to allocate 8.00"),
        (MemoryError(), "not enough memory\n"),
    ],
)
def test_what_the_system_refuses_is_an_error(
    raised: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise raised

    monkeypatch.setattr(traces, "load_large", refuse)
    assert error("inspect good.csv").startswith(f"error: {told}")


def test_a_hostile_name_stays_on_one_line() -> None:
    assert "no such?[31m: neither" in error("inspect 'no\nsuch\x1b[31m'")
    write(make(EVENTS, provenance=Provenance(name="evil\n\x1b[31m[bold]")), "evil.parquet")
    (row,) = json.loads(output(f"compare evil.parquet --allocators naive {QUICK} --json -"))
    assert row["workload"] == "evil ?[31m[bold]"
    assert "[bold]" in output(f"compare evil.parquet {QUICK}")


def test_the_module_runs_as_a_program() -> None:
    command = python("replay", "good.csv", "--allocator", "bfc", "--json", "-")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["allocator"] for row in json.loads(done.stdout)] == ["bfc"]
    done = subprocess.run(python("compare", "text.csv"), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: text.csv: its format is not recognized: .*\n", done.stderr)
