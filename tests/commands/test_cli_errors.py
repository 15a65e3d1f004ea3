# SPDX-License-Identifier: Apache-2.0
"""allocbench.cli: every kind of wrong command, each without a traceback."""

import errno
import json
import re
import subprocess
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.inputs import traces
from allocbench.workloads import Provenance, catalog, write
from tests.commands import EVENTS, QUICK, error, folder, output, python
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

NAMES = ", ".join(catalog.names())


EVERY = [info.name for info in allocators.strategies()]


@pytest.mark.parametrize("command", ["compare", "replay --allocator bfc", "inspect"])
@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("god.csv", "god.csv: neither a file nor a workload; did you mean good.csv"),
        ("gpt2-trian", "gpt2-trian: neither a file nor a workload; did you mean gpt2-train?"),
        ("nothing-like-it", "nothing-like-it: neither a file nor a workload; `allocbench list"),
        ("nowhere/t.csv", "nowhere/t.csv: neither a file nor a workload; there is no folder now"),
        ("missing.csv:device=1", "missing.csv: neither a file nor a workload; "),
        ("text.csv", "text.csv: its format is not recognized: line 1 is 'hello'; expected the"),
        ("broken.csv", "broken.csv: line 3: 'a,x,7q': size '7q' is not a whole number of bytes"),
        ("dead.csv", "dead.csv: line 4: 'f,0,': block 0 is not live; expected the id of a block"),
        ("cut.parquet", "cut.parquet: "),
        (".", ".: is a folder, not a file"),
    ],
)
def test_an_invalid_trace_is_an_error(command: str, argument: str, told: str) -> None:
    assert f"error: {told}" in error(f"{command} {argument}")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--device sim:-1", "--device sim:-1: '-1' is not a number of bytes"),
        ("--device sim:1GiB,speed=9", "has no option 'speed'; valid options: addresses"),
        ("--device gpu:0", "no device is called 'gpu'; valid: sim:CAPACITY"),
        ("--device fast-card", "no such card; these are: rtx-3070-8gb,"),
        ("--device sim:60KiB", "a capacity of 60.00 KiB (61440 bytes) is too small"),
        ("--time -1", "'--time'"),
        ("--time x", "'--time'"),
        ("--pin 99999", "--pin 99999: "),
        ("--bogus", "No such option: --bogus"),
    ],
)
@pytest.mark.parametrize("command", ["compare good.csv", "replay good.csv --allocator bfc"])
def test_a_wrong_option_is_an_error(command: str, option: str, told: str) -> None:
    assert told in error(f"{command} --json new.json {option}")


def test_a_device_too_small_for_one_request_is_an_error() -> None:
    told = error("compare good.csv --device sim:1MiB --json new.json")
    assert "--device sim:1MiB: a capacity of 1.00 MiB (1048576 bytes) is too small for good" in told
    assert "event 3 (from 0) asks for 3.00 MiB (3145728 bytes)" in told


@pytest.mark.parametrize(
    "command", ["compare good.csv --allocators", "replay good.csv --allocator"]
)
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("nope", f"no allocator is called 'nope'; valid names: {', '.join(EVERY)}"),
        ("bfc:nope=1", "bfc has no option 'nope'; valid options: preset, memory_limit"),
        ("bfc:allow_growth=7", "allow_growth=7 must be true or false"),
        ("bfc:allow_growth", "'allow_growth' is not option=value"),
        ("''", "'' is not a spec"),
    ],
)
def test_an_unknown_allocator_or_option_is_an_error(command: str, spec: str, told: str) -> None:
    assert told in error(f"{command} {spec}")


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
    ("line", "told"),
    [
        ("compare", "Missing argument"),
        ("compare good.csv good.csv", "good.csv: given twice"),
        ("compare good.csv --allocators bfc,bfc", "'bfc' is given twice"),
        ("compare good.csv --reference nope", "--reference nope: not compared; compared are arena"),
        ("compare good.csv --json - --html -", "cannot both go to standard output"),
        ("compare good.csv --json new --html ./new", "cannot both go to ./new"),
        ("list nonsense", "'nonsense' is not one of 'allocators', 'workloads', 'devices'"),
        ("convert good.csv -o new.txt", "new.txt: the extension must be"),
        ("nonsense", "No such command 'nonsense'"),
        ("devices", "no command 'devices': try 'allocbench list devices'"),
        ("good.csv", "no command 'good.csv': try 'allocbench check good.csv'"),
    ],
)
def test_a_wrong_command_line_is_an_error(line: str, told: str) -> None:
    assert told in error(line)


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
