# SPDX-License-Identifier: Apache-2.0
"""The source of a device time; of an estimate, its range and the costs that it assumes."""

from __future__ import annotations

from typing import Any

from allocbench.allocators import Device, DeviceStats
from allocbench.allocators.devices import COST_MODELS, cost_model
from allocbench.reports.rows.assumptions import Cost, Estimate, to_text


def time_source(device: Device) -> str:
    """Where the seconds of device calls come from: "estimate", by any cost model, or "measured"."""
    return "estimate" if device.cost_source in COST_MODELS else device.cost_source


def assumed(device: Device, stats: DeviceStats) -> dict[str, Any]:
    """The columns of `reports.results` that describe an estimate; none for a measured time."""
    if not stats.calls_at_points:
        return {}
    costs = [
        Cost(call, point["bytes"], point["low"], point["seconds"], point["high"])
        for call, points in cost_model(device.cost_source)["calls"].items()
        for point in points
    ]
    calls = dict(zip(costs, stats.calls_at_points, strict=True))
    estimate = Estimate(calls=calls)
    return {
        "device_seconds_low": estimate.low,
        "device_seconds_high": estimate.high,
        "device_assumptions": to_text(calls.items()),
    }
