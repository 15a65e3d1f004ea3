# SPDX-License-Identifier: Apache-2.0
"""allocbench sweep: each run happens once, even if processes die."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocbench.base.trace import PrivatePool
from allocbench.errors import UsageError
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import Row
from allocbench.reports.rows import bundle, results
from allocbench.reports.rows.bundle import Key, key_of
from allocbench.reports.rows.results import SCHEMA
from allocbench.sweeps.file import append, fingerprint, open_records, record
from allocbench.sweeps.sweep import measure, sweep
from allocbench.workloads import ALLOC, FREE, Provenance, Trace, catalog, write
from tests.commands import EVENTS, error, folder, output, run
from tests.traces import Event, held_at_start, make
from tests.waiting import is_running, wait_until

__all__ = ["folder"]  # the fixture, by its import

MIB = 1 << 20
FAST = Effort(passes=0, capacity=False)


def traces(count: int) -> dict[str, Trace]:
    return {
        f"t{n}": make([(ALLOC, 0, MIB), (ALLOC, 1, MIB + n), (FREE, 0, 0), (FREE, 1, 0)])
        for n in range(count)
    }


def test_every_combination_is_a_row_of_the_schema_and_is_not_made_again() -> None:
    begun: list[Key] = []
    runs: list[int] = []
    given: Any = {"total": runs.append, "done": begun.append, "workers": 2}
    some = traces(2)
    first = sweep(some, ["naive", "bfc"], ["sim:1GiB", "sim:1MiB"], "s.jsonl", FAST, **given)
    assert list(first.columns) == [*SCHEMA, "trace", "code", "error"]
    assert len(first) == len(begun) == 8
    assert first["error"].isna().all()
    more = sweep(some, ["naive", "tlsf"], ["sim:1GiB"], "s.jsonl", FAST, **given)
    assert runs == [8, 2]
    assert {key.allocator for key in begun[8:]} == {"tlsf"}
    assert len(more) == 10
    assert not more.duplicated(["workload", "allocator", "device"]).any()
    (row,) = results.records(first.query("workload == 't1' and allocator == 'naive'").head(1))
    assert row["peak_reserved"] in (2 * MIB + 1, MIB)


def test_another_trace_of_the_same_name_is_another_run() -> None:
    one, two = traces(2).values()
    assert fingerprint(one) != fingerprint(two)
    for trace in (one, two, one):
        found = sweep({"same": trace}, ["naive"], ["sim:1GiB"], "s.jsonl", FAST, workers=1)
    assert list(found["trace"]) == [fingerprint(one), fingerprint(two)]


def test_other_code_makes_all_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(traces(1), ["naive"], ["sim:1GiB"], "s.jsonl", FAST, workers=1)
    monkeypatch.setattr("allocbench.sweeps.sweep.code_version", lambda: "another")
    found = sweep(traces(1), ["naive"], ["sim:1GiB"], "s.jsonl", FAST, workers=1)
    assert len(found) == 2
    assert found["code"].iloc[1] == "another"


def test_a_run_that_measured_less_is_made_again() -> None:
    """A sweep asks for more than the one before it: then for less, and then for the same."""
    asked = [(0, False, 1), (0, True, 1), (2, True, 1), (1, False, 0), (2, True, 0)]
    for passes, capacity, made in asked:
        runs: list[int] = []
        given: Any = {"workers": 1, "total": runs.append}
        effort = Effort(passes, capacity)
        found = sweep(traces(1), ["naive"], ["sim:1GiB"], "s.jsonl", effort, **given)
        assert runs == [made], effort
    (row,) = results.records(found)
    assert (row["passes"], row["min_capacity"]) == (2, 2 * MIB)


def fragile(trace: Trace, key: Key, effort: Effort) -> Row:
    """A run that raises for one allocator, and whose process dies for another and one trace."""
    if (key.allocator, key.workload) == ("buddy", "t0"):
        os.kill(os.getpid(), signal.SIGKILL)
    if key.allocator == "slab":
        raise ValueError("of\nall\tthings")
    return measure(trace, key, effort)


def test_a_run_that_raises_or_dies_is_a_row_with_an_error() -> None:
    specs = ["naive", "buddy", "slab", "bfc"]
    found = sweep(
        traces(2), specs, ["sim:1GiB"], "s.jsonl", FAST, workers=2, runner=fragile
    ).set_index(["allocator", "workload"])
    assert len(found) == 8
    wrong = found[found["error"].notna()]
    assert sorted(wrong.index) == [("buddy", "t0"), ("slab", "t0"), ("slab", "t1")]
    assert wrong.loc[("slab", "t1"), "error"] == "ValueError: of all things"
    assert str(wrong.loc[("buddy", "t0"), "error"]).startswith("the process died")
    assert len(open_records("s.jsonl")) == 8
    again = sweep(traces(2), specs, ["sim:1GiB"], "s.jsonl", FAST, workers=2)
    assert again["error"].notna().sum() == 3
    healed = sweep(traces(2), specs, ["sim:1GiB"], "s.jsonl", FAST, workers=2, retry=True)
    assert healed["error"].isna().all()
    assert len(healed) == 8


@pytest.mark.parametrize(("end", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_sweep_that_was_ended_leaves_no_worker_and_resumes_without_duplicates(
    end: signal.Signals, code: int
) -> None:
    line = "sweep good.csv --allocators naive,bfc,buddy,slab -o s.jsonl"
    file, pids = Path("s.jsonl"), Path("pids")
    pids.touch()
    endless = [sys.executable, "-m", "tests.sweeps.endless", "pids"]
    command = [*endless, *line.split(), "--workers", "2"]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: process.poll() is not None or pids.read_text().count("\n") == 2)
    wait_until(lambda: process.poll() is not None or file.read_bytes().count(b"\n") == 1)
    if end == signal.SIGINT:
        os.killpg(process.pid, end)  # as a terminal does
    else:
        process.send_signal(end)
    stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stdout) == (code, b"")
    assert end == signal.SIGKILL or stderr == b""
    workers = [int(pid) for pid in pids.read_text().split()]
    assert len(workers) == 2
    wait_until(lambda: not any(is_running(pid) for pid in workers))

    (before,) = open_records("s.jsonl")
    assert key_of(before).allocator == "naive"
    file.write_bytes(file.read_bytes() + b'{"key": {"workload": "gpt')
    assert "4 rows, 1 of them from earlier sweeps" in output(line)
    keys = [json.dumps(json.loads(text)["key"]) for text in file.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 4


@pytest.mark.parametrize("refused", ["__init__", "submit"])
def test_processes_that_the_system_refuses_are_an_error_of_one_line(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their locks are files in /dev/shm, which may be full or missing in a container."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"allocbench.sweeps.sweep.ProcessPoolExecutor.{refused}", refuse)
    with pytest.raises(UsageError) as raised:
        sweep(traces(1), ["naive"], ["sim:1GiB"], "s.jsonl", FAST, workers=2)
    assert str(raised.value).startswith(
        "--workers 2: the system cannot start 2 processes: No space left on device; they need"
    )


def test_a_full_disk_is_one_line_and_keeps_what_was_there() -> None:
    output("sweep good.csv --allocators naive -o s.jsonl")
    before = Path("s.jsonl").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        said = error("sweep good.csv --allocators naive,bfc,buddy -o s.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert said.startswith("error: s.jsonl: cannot write: File too large; the results before")
    assert Path("s.jsonl").read_bytes() == before
    assert "not a regular file" in error("sweep good.csv -o /dev/full")


def test_the_command_prints_tables_and_writes_rows() -> None:
    write(make(EVENTS[:4], provenance=Provenance(name="made")), "made.parquet")
    line = "sweep good.csv made.parquet --allocators slab,naive --device sim:1GiB,sim:1MiB"
    shown = output(f"{line} --json rows.json")
    assert "sweep.jsonl: 8 rows, 0 of them from earlier sweeps\n" in shown
    for title in ("good on sim:1GiB", "made on sim:1MiB", "Geometric mean over 2 workloads"):
        assert f"\n{title}" in f"\n{shown}"
    assert shown.count("\nslab (reference)") == 4 + 2
    assert "\nnaive (failed)" in shown
    assert "\nmade on sim:1GiB: Fastest" not in shown  # without times
    assert "\nmade on sim:1GiB: Least device time (estimate" in shown
    rows = bundle.read("rows.json").rows
    assert set(rows["allocator"]) == {"naive", "slab"}
    again = output("sweep good.csv --allocators buddy,naive --device sim:1GiB")
    assert "9 rows, 8 of them from earlier sweeps" in again
    assert "made" not in again
    assert again.index("\nbuddy ") < again.index("\nnaive ")


def test_a_report_is_made_from_the_file_of_a_sweep() -> None:
    one, two = traces(2).values()
    given: Any = {"workers": 1, "runner": fragile}
    sweep({"same": one}, ["naive", "slab"], ["sim:1GiB"], "s.jsonl", FAST, **given)
    assert output("report s.jsonl") == ""
    page = Path("report.html").read_text(encoding="utf-8")
    assert "slab is n/a: it ended with an error: ValueError: of all things" in page
    sweep({"same": two}, ["naive", "bfc"], ["sim:1GiB"], "s.jsonl", FAST, **given)
    with Path("s.jsonl").open("a") as file:
        file.write('{"key": {"workl')  # it is still being written
    shown = run("report s.jsonl --markdown -")
    assert shown.exit_code == 0
    assert shown.stderr == (
        "note: s.jsonl: 2 older runs are left out: repeated since, or of another trace\n"
    )
    assert shown.stdout.startswith("### same\n")
    lines = shown.stdout.splitlines()
    assert [text.split()[1] for text in lines if text.startswith("| ")] == [
        *("allocator", "---", "bfc", "naive")
    ]
    assert "2.00 MiB" in shown.stdout  # of the second trace, a byte more than of the first
    Path("empty.jsonl").touch()
    assert "empty.jsonl: no result rows to report" in error("report empty.jsonl")
    Path("broken.jsonl").write_text('{"key": 7}\n')
    assert "broken.jsonl: line 1: not a sweep result" in error("report broken.jsonl")


def test_errors_are_one_line() -> None:
    Path("other.jsonl").write_text('{"a": 1}\n')
    assert "line 1: not a sweep result" in error("sweep good.csv -o other.jsonl")
    Path("half.txt").write_text("hello")
    assert "not a sweep result" in error("sweep good.csv -o half.txt")
    assert Path("half.txt").read_text() == "hello"
    assert "no device is called 'x'" in error("sweep good.csv --device x:1")
    assert "given twice" in error("sweep good.csv --device sim:1GiB,sim:1GiB")
    assert "no allocator is called" in error("sweep good.csv --allocators nosuch")
    assert "--json - prints rows" in error("sweep good.csv -o -")


def test_an_unfinished_line_is_cut_off_and_all_others_stay() -> None:
    key = Key("w", "t", "a", "d", "c")
    append("s.jsonl", record(key, {}, "wrong"))
    whole = Path("s.jsonl").read_bytes()
    for end in (1, 10, len(whole) - 1):
        Path("s.jsonl").write_bytes(whole + whole[:end])
        (one,) = open_records("s.jsonl")
        assert key_of(one) == key
        assert Path("s.jsonl").read_bytes() == whole


def test_hashes_tell_traces_apart_that_replays_tell_apart() -> None:
    name = "random:allocs=100,seed=1"
    assert fingerprint(catalog.load(name)) == fingerprint(catalog.load(name))
    assert fingerprint(make([(ALLOC, 0, 1)])) != fingerprint(make([(ALLOC, 0, 2)]))


def test_hashes_tell_recordings_apart_that_were_made_with_other_settings() -> None:
    """One whose allocator had expandable segments needs other bytes, with the same events."""
    events: list[Event] = [(ALLOC, 0, 30 * MIB), (FREE, 0, 0), (ALLOC, 0, 50 * MIB), (FREE, 0, 0)]
    settings = {"expandable_segments": "true"}
    recordings = {
        "plain": make(events),
        "expandable": make(events, provenance=Provenance(extra={"settings": settings})),
        "older": make(events, provenance=Provenance(torch="2.5.1")),
        "pool": replace(make(events), pools=(PrivatePool("0.1"),)),
        "begun": replace(make(events), layout=held_at_start()[1]),
        "beside": make(events, provenance=Provenance(extra={"outside": {"NCCL": 7 * MIB}})),
        "renamed": make(events, provenance=Provenance(name="other", source="elsewhere")),
    }
    marks = {name: fingerprint(trace) for name, trace in recordings.items()}
    assert marks.pop("renamed") == marks["plain"]
    assert len({*marks.values()}) == len(marks)
    two = {name: recordings[name] for name in ("plain", "expandable")}
    found = sweep(two, ["caching"], ["sim:1GiB"], "s.jsonl", FAST, workers=1)
    reserved = dict(zip(found["workload"], found["peak_reserved"], strict=True))
    assert reserved == {"plain": 80 * MIB, "expandable": 60 * MIB}  # of 20 MiB each


def test_workers_do_not_import_what_lies_in_the_current_folder() -> None:
    for module in ("collections", "multiprocessing", "signal", "struct", "threading", "warnings"):
        Path(f"{module}.py").write_text(
            f"open('imported', 'a').write('{module}')\nraise SystemExit\n"
        )
    assert run("sweep good.csv --allocators naive -o s.jsonl --workers 1").exit_code == 0
    assert not Path("imported").exists()
