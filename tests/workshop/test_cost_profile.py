# SPDX-License-Identifier: Apache-2.0
"""The cost models of the simulated device that come from measurements on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

from allocbench.allocators.devices import cost_model
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.workloads import ALLOC
from benchmarks.workshop.gpu.cost_profile import cost_profile
from tests.traces import make

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "gpu"


def test_the_costs_of_an_h100_are_those_of_the_stored_measurement() -> None:
    results = [
        json.loads(path.read_text())
        for name in ("calibration/device_costs.json", "costs/call_costs.json")
        for path in RESULTS.glob(f"nvidia-h100-*/{name}")
    ]
    assert cost_model("h100") == cost_profile("h100", *results)


def test_a_time_from_measured_costs_is_an_estimate_all_the_same() -> None:
    trace = make([(ALLOC, 0, 2 << 20)])
    effort = Effort(passes=0, capacity=False)
    row, _ = experiment.run(trace, "naive", "sim:1GiB,costs=h100", effort)
    (point,) = (
        point for point in cost_model("h100")["calls"]["malloc"] if point["bytes"] == 2 << 20
    )
    assert row["device_seconds_source"] == "estimate"
    ends = (row["device_seconds_low"], row["device_seconds"], row["device_seconds_high"])
    assert ends == (point["low"], point["seconds"], point["high"])
