# SPDX-License-Identifier: Apache-2.0
"""A program of `benchmarks.workshop.measured`: predicted by `fit`, then run, both on a null GPU."""

from pathlib import Path

from allocbench.null_gpu import launch
from allocbench.null_gpu.device import read
from benchmarks.workshop.measured import measure, plan, predict, report
from tests.null_gpu import python
from tests.null_gpu.test_program_workloads import a_cache_of_its_own

__all__ = ["a_cache_of_its_own"]  # the fixture, by its import

MIB = 1 << 20
LSTM = plan.Run(
    "lstm",
    "recurrent",
    "recurrent",
    ("--cell=LSTM", "--batch=8", "--tokens=64", "--width=256", "--layers=1", "--steps=2"),
    alone=False,
    limited=True,
)


def test_a_run_is_measured_as_it_was_predicted(tmp_path: Path) -> None:
    said = predict.predict(LSTM, "0", "null:h100", python())
    assert said["peak_reserved"] >= said["min_capacity"] >= said["max_load"] > 200 * MIB
    assert list(said["stages"]) == ["model", "step 1", "step 2", "end"]
    said["date"] = "2026-01-01T00:00:00+00:00"  # the whole test may take less than a second
    jobs = measure.jobs([LSTM], {LSTM.name: {"0": said}})
    variables = launch.environment(read("null:h100"), tmp_path / "null")
    left = measure.measure(
        jobs,
        tmp_path,
        most_jobs=1,
        memory=1 << 40,
        budget=500,
        python=python(),
        variables=variables,
    )
    assert left == 0
    _, rows = report.read(tmp_path / measure.RESULTS)
    found = report.compare([LSTM], {"runs": {LSTM.name: {"0": said}}}, rows, "0")
    assert [one.error for one in found] == [0.0, None, None]
    assert [one.truth and one.truth.oom for one in found] == [False, True, False]
    assert [one.said and one.said.oom for one in found] == [False, True, False]
    assert rows[0]["result"]["stages"][-1]["events"] > 0
