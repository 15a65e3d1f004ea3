# SPDX-License-Identifier: Apache-2.0
"""The range of an estimated device time, and the costs that it assumes."""

from __future__ import annotations

from typing import Any

from allocbench.allocators import DeviceStats
from allocbench.allocators.devices import cost_model
from allocbench.reports.assumptions import Cost, Estimate, to_text


def assumed(device: DeviceStats) -> dict[str, Any]:
    """The columns of `reports.results` that describe an estimate; none for a measured time."""
    if not device.calls_at_points:
        return {}
    costs = [
        Cost(call, point["bytes"], point["low"], point["seconds"], point["high"])
        for call, points in cost_model()["calls"].items()
        for point in points
    ]
    calls = dict(zip(costs, device.calls_at_points, strict=True))
    estimate = Estimate(calls=calls)
    return {
        "device_seconds_low": estimate.low,
        "device_seconds_high": estimate.high,
        "device_assumptions": to_text(calls.items()),
    }
