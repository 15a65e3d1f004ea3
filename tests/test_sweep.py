# SPDX-License-Identifier: Apache-2.0
"""allocbench sweep: each run once, whatever dies meanwhile, on processes and on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allocbench import allocators, sweep_file
from allocbench.errors import UsageError
from allocbench.experiment import Effort, Row
from allocbench.reports import results
from allocbench.reports.results import SCHEMA
from allocbench.sweep import measure, sweep
from allocbench.sweep_file import Key, fingerprint, open_records
from allocbench.workloads import ALLOC, FREE, Trace, catalog
from tests.commands import error, folder, output, python
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

MIB = 1 << 20
OF_THE_DAY = {"date", "cpu", "python", "allocbench_version"}
FAST = Effort(passes=0, capacity=False)


def traces(count: int) -> dict[str, Trace]:
    return {
        f"t{n}": make([(ALLOC, 0, MIB), (ALLOC, 1, MIB + n), (FREE, 0, 0), (FREE, 1, 0)])
        for n in range(count)
    }


def without_date(table: pd.DataFrame) -> list[dict[str, Any]]:
    kept = table.drop(columns=list(OF_THE_DAY))
    return results.records(kept.sort_values(["workload", "allocator", "device"], ignore_index=True))


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
    monkeypatch.setattr("allocbench.sweep.code_version", lambda: "another")
    found = sweep(traces(1), ["naive"], ["sim:1GiB"], "s.jsonl", FAST, workers=1)
    assert len(found) == 2
    assert "not another" in found["error"].iloc[1]  # the worker's code is what it was


def fragile(trace: Trace, key: Key, effort: Effort) -> Row:
    """A run that raises for one allocator, and whose process dies for another."""
    if key.allocator == "buddy":
        os.kill(os.getpid(), signal.SIGKILL)
    if key.allocator == "slab":
        raise ValueError("of\nall\tthings")
    return measure(trace, key, effort)


def test_what_raises_and_what_dies_are_rows_with_an_error() -> None:
    specs = ["naive", "buddy", "slab", "bfc"]
    found = sweep(
        traces(2), specs, ["sim:1GiB"], "s.jsonl", FAST, workers=2, runner=fragile
    ).set_index(["allocator", "workload"])
    assert len(found) == 8
    wrong = found[found["error"].notna()]
    assert set(wrong.index.get_level_values(0)) == {"buddy", "slab"}
    assert wrong.loc[("slab", "t0"), "error"] == "ValueError: of all things"
    assert str(wrong.loc[("buddy", "t1"), "error"]).startswith("the process died")
    assert len(open_records("s.jsonl")) == 8
    again = sweep(traces(2), specs, ["sim:1GiB"], "s.jsonl", FAST, workers=2)
    assert again["error"].notna().sum() == 4
    healed = sweep(traces(2), specs, ["sim:1GiB"], "s.jsonl", FAST, workers=2, retry=True)
    assert healed["error"].isna().all()
    assert len(healed) == 8


def test_killed_in_the_middle_it_finishes_with_each_row_once() -> None:
    line = ["sweep", "gpt2-train", "--devices", "sim:24GiB,sim:80GiB"]
    command = python(*line, "--workers", "2", "-o", "s.jsonl")
    process = subprocess.Popen(command, start_new_session=True)
    file = Path("s.jsonl")
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait()
    before = [one["key"] for one in open_records("s.jsonl")]
    runs = 2 * len(allocators.names())
    assert 3 <= len(before) < runs
    file.write_bytes(file.read_bytes() + b'{"key": {"workload": "gpt')
    assert f"{runs} rows, {len(before)} of them there before" in output(
        " ".join(line) + " -o s.jsonl"
    )
    keys = [json.dumps(json.loads(text)["key"]) for text in file.read_text().splitlines()]
    assert max(Counter(keys).values()) == 1
    assert len(keys) == runs


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a Dask scheduler with two workers."""
    import dask
    import distributed

    make_cluster: Any = distributed.LocalCluster
    where = {"dashboard_address": None, "host": "127.0.0.1"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        make_cluster(n_workers=2, threads_per_worker=1, **where) as cluster,
    ):
        yield str(cluster.scheduler_address)


def test_a_cluster_gives_the_same_rows_as_processes_do(scheduler: str) -> None:
    specs = [*sorted(set(allocators.names()) - {"planned", "bump"}), "bfc:allow_growth=false"]
    devices = ["sim:1GiB", "sim:64MiB", "sim:2MiB", "sim:1MiB"]
    some = traces(5)
    here = sweep(some, specs, devices, "here.jsonl", FAST, workers=2)
    there = sweep(some, specs, devices, "there.jsonl", FAST, scheduler=scheduler)
    assert len(here) == 5 * len(specs) * 4 == 200
    assert without_date(here) == without_date(there)


def test_on_a_cluster_too_a_run_that_dies_is_a_row(scheduler: str) -> None:
    specs = ["naive", "buddy", "slab"]
    found = sweep(
        traces(1), specs, ["sim:1GiB"], "s.jsonl", FAST, scheduler=scheduler, runner=fragile
    ).set_index("allocator")
    assert str(found.loc["buddy", "error"]).startswith("the process died")
    assert found.loc["slab", "error"] == "ValueError: of all things"
    assert len(found) == 3


def test_the_command_writes_rows_that_a_report_can_read() -> None:
    shown = output("sweep good.csv --allocators naive,bfc --json rows.json --no-min-capacity")
    assert shown == "sweep.jsonl: 2 rows, 0 of them there before\n"
    assert set(results.read("rows.json")["allocator"]) == {"naive", "bfc"}
    more = "--allocators buddy:region=1GiB --devices sim:1GiB,sim:1MiB --no-min-capacity"
    assert "4 rows, 2 of them there before" in output(f"sweep good.csv {more}")


def test_what_cannot_be_is_one_line() -> None:
    Path("other.jsonl").write_text('{"a": 1}\n')
    assert "line 1: no result of a sweep" in error("sweep good.csv -o other.jsonl")
    Path("half.txt").write_text("hello")
    assert "no result of a sweep" in error("sweep good.csv -o half.txt")
    assert Path("half.txt").read_text() == "hello"
    assert "no device is called 'x'" in error("sweep good.csv --devices x:1")
    assert "given twice" in error("sweep good.csv --devices sim:1GiB,sim:1GiB")
    assert "no allocator is called" in error("sweep good.csv --allocators nosuch")
    assert "--json - prints rows" in error("sweep good.csv -o -")


def test_a_scheduler_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocbench.sweep._CONNECT_SECONDS", 0.5)
    with pytest.raises(UsageError, match="no scheduler answers"):
        sweep(traces(1), ["naive"], ["sim:1GiB"], "s.jsonl", scheduler="tcp://127.0.0.1:9")


def test_an_unfinished_line_is_cut_off_and_all_others_stay() -> None:
    key = Key("w", "t", "a", "d", "c")
    sweep_file.append("s.jsonl", sweep_file.record(key, None, "wrong"))
    whole = Path("s.jsonl").read_bytes()
    for end in (1, 10, len(whole) - 1):
        Path("s.jsonl").write_bytes(whole + whole[:end])
        (one,) = open_records("s.jsonl")
        assert sweep_file.key_of(one) == key
        assert Path("s.jsonl").read_bytes() == whole


def test_hashes_tell_traces_apart_that_replays_tell_apart() -> None:
    trace = catalog.load("ping-pong")
    assert fingerprint(trace) == fingerprint(catalog.load("ping-pong"))
    assert fingerprint(make([(ALLOC, 0, 1)])) != fingerprint(make([(ALLOC, 0, 2)]))
