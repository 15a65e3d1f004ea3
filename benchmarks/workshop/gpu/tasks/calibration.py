# SPDX-License-Identifier: Apache-2.0
"""Task: measure the cost of device calls by size, as a cost model for the simulated device."""

import argparse
import statistics
from typing import Any

from allocbench import allocators
from allocbench.allocators import _core
from allocbench.workloads import catalog
from benchmarks.workshop.gpu import task

REPEATS = 30
SIZES = [1 << power for power in (8, 12, 16, 19, 20, 21, 22, 24, 26, 28, 30, 32, 33)]
_PREDICTED = ("gpt2-train", "llm-decode")
_ALLOCATORS = ("naive", "caching", "caching:expandable_segments=true", "bfc", "slab")

Curve = list[tuple[float, float]]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Cost curves, seconds by bytes, and predicted and measured device time of whole replays."""
    repeats, sizes = (3, SIZES[:6]) if arguments.dry else (REPEATS, SIZES)
    with allocators.CudaDevice() as device:
        _core.measure_calls(device, 1 << 20, repeats)  # the first calls of a process are slower
        samples = {size: _core.measure_calls(device, size, repeats) for size in sizes}
    curves: dict[str, Curve] = {
        call: [
            (float(size), statistics.median(seconds[call]))
            for size, seconds in samples.items()
            if seconds[call]
        ]
        for call in ("malloc", "free", "map", "unmap")
    }
    extremes = {
        call: [
            (size, min(seconds[call]), max(seconds[call]))
            for size, seconds in samples.items()
            if seconds[call]
        ]
        for call in curves
    }
    return {
        "unit": "each point is [bytes, seconds], the median of the repeats",
        "repeats": repeats,
        "calls": curves,
        "least_and_most": extremes,
        "predictions": [
            _predict(workload, spec, curves)
            for workload in _PREDICTED[: 1 if arguments.dry else None]
            for spec in _ALLOCATORS[: 2 if arguments.dry else None]
        ],
    }


def _predict(workload: str, spec: str, curves: dict[str, Curve]) -> dict[str, Any]:
    trace = catalog.load(workload)
    with allocators.CudaDevice() as device:
        real = allocators.replay(trace, allocators.make(spec, device), samples=1)
        capacity = device.capacity
    simulated = _core.SimulatedDevice(
        capacity,
        source="measured calls",
        malloc=curves["malloc"],
        free=curves["free"],
        map=curves["map"],
        unmap=curves["unmap"],
    )
    model = allocators.replay(trace, allocators.make(spec, simulated), samples=1)
    return {
        "workload": workload,
        "allocator": spec,
        "failures": real.stats.failures,
        "calls_measured": real.device.calls,
        "calls_predicted": model.device.calls,
        "seconds_measured": real.device.seconds,
        "seconds_predicted": model.device.seconds,
    }


if __name__ == "__main__":
    task.finish(task.new_parser(__doc__).parse_args(), measure)
