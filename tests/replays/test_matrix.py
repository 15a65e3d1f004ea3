# SPDX-License-Identifier: Apache-2.0
"""A matrix of runs: order, progress, threads."""

import threading
import time

import pandas as pd
import pytest

from allocbench import allocators
from allocbench.allocators import SpecError
from allocbench.replays import experiment, runner
from allocbench.replays.capacity import Shown
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import can_be_made
from allocbench.workloads import Trace
from tests.replays.test_experiment import TINY, churn
from tests.traces import make


def test_a_wrong_spec_is_found_before_anything_is_run() -> None:
    begun: list[str] = []
    with pytest.raises(SpecError, match="nonsense"):
        experiment.run_matrix(
            {"tiny": make(TINY)},
            ["naive", "bfc:nonsense=1"],
            "sim:1GiB",
            stage=lambda *names: begun.append(names[0]),
        )
    assert begun == []


def test_a_matrix_runs_every_workload_through_every_allocator_and_reports_progress() -> None:
    begun: list[tuple[str, ...]] = []
    done: list[tuple[str, str]] = []
    effort = Effort(passes=1)
    rows, details = experiment.run_matrix(
        {"one": make(TINY), "two": churn(20)},
        ["naive", "bfc"],
        "sim:1GiB",
        effort,
        detailed=True,
        stage=lambda *names: begun.append(names),
        done=lambda row: done.append((row["workload"], row["allocator"])),
    )
    pairs = [("one", "naive"), ("one", "bfc"), ("two", "naive"), ("two", "bfc")]
    assert [(row["workload"], row["allocator"]) for row in rows] == pairs
    assert done == pairs
    memory = details["memory"][["workload", "allocator"]].drop_duplicates()
    assert list(memory.itertuples(index=False, name=None)) == pairs
    assert set(details["program"]["workload"]) == {"one", "two"}
    for workload in ("one", "two"):
        these = [stage for stage in begun if stage[0] == workload]
        # The allocators of a workload take turns in being timed, while nothing else runs.
        assert these[:2] == [(workload, name, "time") for name in ("naive", "bfc")]
        for name in ("naive", "bfc"):
            rest = [stage for _, allocator, stage in these[2:] if allocator == name]
            assert rest == [stage for stage in effort.stages if stage != "time"]
    assert [workload for workload, *_ in begun] == ["one"] * 6 + ["two"] * 6


def test_a_matrix_has_the_same_rows_and_tables_whatever_the_number_of_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for processors in (1, 3, 64):
        monkeypatch.setattr(experiment, "runs_at_once", lambda _, n=processors: min(n, 4))
        threads: list[str] = []

        def begun(*_: str, threads: list[str] = threads) -> None:
            threads.append(threading.current_thread().name)

        rows, details = experiment.run_matrix(
            {"churn": churn(60)},
            [name for name in allocators.names() if can_be_made(name, "sim:1GiB")],
            "sim:1GiB",
            Effort(0),
            detailed=True,
            stage=begun,
        )
        assert ("MainThread" in threads) == (processors == 1)
        assert 1 <= len(set(threads)) <= min(processors, 4)
        found.append(([{**row, "date": None} for row in rows], details))
    (rows, details), *others = found
    for other_rows, other_details in others:
        assert other_rows == rows
        for name, table in details.items():
            pd.testing.assert_frame_equal(table, other_details[name])


def test_a_matrix_ends_its_searches_when_a_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "runs_at_once", lambda _: 2)
    before = threading.active_count()
    tries: list[str] = []
    failed = threading.Event()

    def search(trace: Trace, spec: str, *_: object) -> Shown:
        tries.append(spec)
        if spec == "bfc":
            failed.set()
            raise MemoryError
        failed.wait()
        time.sleep(0.01)
        return Shown(False, 0, 0)

    monkeypatch.setattr(runner, "trial", search)
    with pytest.raises(MemoryError):
        experiment.run_matrix({"tiny": make(TINY)}, ["bfc", "naive"], "sim:1GiB", Effort(0))
    assert tries.count("naive") < 20  # of those that it takes to find that nothing is enough
    assert threading.active_count() == before
