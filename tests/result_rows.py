# SPDX-License-Identifier: Apache-2.0
"""Result rows and timelines made up for the tests of the reports."""

from typing import Any

import pandas as pd

from allocbench.reports.rows.assumptions import Cost, Estimate, to_text
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import join, table
from allocbench.reports.rows.results import frame

GIB = 2**30
MALLOC = Cost("malloc", 20 * 2**20, 20e-6, 40e-6, 100e-6)
HOSTILE = "<script>alert('x')</script> & \"q\" $x^2$ {{ 7 * 7 }} [red]"


def row(allocator: str, workload: str = "train", **changes: Any) -> dict[str, Any]:
    """One full row with plausible numbers; `changes` replace columns.

    An estimated device time assumes only the cost MALLOC.
    """
    values: dict[str, Any] = {
        "workload": workload,
        "allocator": allocator,
        "device": "sim:80GiB",
        "device_kind": "simulated",
        "events": 1000,
        "blocks": 500,
        "candidate": True,
        "max_load": 8 * GIB,
        "peak_requested": 8 * GIB,
        "peak_allocated": 9 * GIB,
        "peak_reserved": 10 * GIB,
        "min_capacity": 10 * GIB,
        "capacity": 80 * GIB,
        "card": "RTX 4070 12GB",
        "context": GIB // 2,
        "wasted": 2 * GIB,
        "stranded": GIB,
        "fragmentation_ratio": 0.1,
        "internal_fragmentation": 0.125,
        "internal_fragmentation_mean": 0.1,
        "external_fragmentation": 0.5,
        "external_fragmentation_mean": 0.25,
        "utilization": 0.9,
        "utilization_at_peak": 0.85,
        "overhead": 1.25,
        "stable_address_share": 0.75,
        "stable_address_bytes_share": 0.5,
        "failures": 0,
        "retries": 0,
        "device_calls": 100,
        "device_calls_steady": 20,
        "device_seconds": 0.004,
        "device_seconds_per_event": 4e-6,
        "device_seconds_source": "estimate",
        "alloc_count": 500,
        "free_count": 400,
        "timer_seconds": 2e-8,
        "seconds_per_event_cold": 60e-9,
        "seconds_per_event_cold_median": 61e-9,
        "seconds_per_event_cold_max": 62e-9,
        "seconds_per_event_steady": 40e-9,
        "seconds_per_event_steady_median": 41e-9,
        "seconds_per_event_steady_max": 42e-9,
        "passes": 5,
        "allocbench_version": "1.2.3",
        "python": "3.11.9",
        "cpu": "Example CPU",
        "date": "2030-01-02T03:04:05Z",
    }
    for call in ("alloc", "free"):
        for n, statistic in enumerate(("mean", "p50", "p90", "p99", "p999", "max"), 1):
            values[f"{call}_{statistic}_seconds"] = n * 30e-9
    values |= changes
    if values["device_seconds"] is None or values["device_seconds_source"] != "estimate":
        return values
    calls = values["device_seconds"] / MALLOC.seconds
    estimate = Estimate(calls={MALLOC: calls})
    ends = {"device_seconds_low": estimate.low, "device_seconds_high": estimate.high}
    return {**ends, "device_assumptions": to_text([(MALLOC, calls)]), **values}


def sized(
    allocator: str, gib: float, nanoseconds: float, workload: str = "train", **changes: Any
) -> dict[str, Any]:
    """A row with this memory (GiB) and this host time per event (ns)."""
    size = int(gib * GIB)
    seconds = nanoseconds * 1e-9
    return row(
        allocator,
        workload,
        **{
            "peak_reserved": size,
            "min_capacity": size,
            "overhead": size / (8 * GIB),
            "seconds_per_event_steady": seconds,
            "seconds_per_event_steady_median": seconds * 1.01,
            "seconds_per_event_steady_max": seconds * 1.02,
            "alloc_p50_seconds": seconds,
            "alloc_p99_seconds": seconds * 9,
            **changes,
        },
    )


def floor(allocator: str = "ground", workload: str = "train") -> dict[str, Any]:
    """The row of a floor: best in every number, but not a candidate."""
    return sized(allocator, 8, 1, workload, candidate=False, device_seconds=1e-6, device_calls=1)


def memory(
    allocator: str, peak: int, points: int = 50, workload: str = "train", device: str = "sim:80GiB"
) -> pd.DataFrame:
    """A table `memory` of one run that climbs to `peak` reserved bytes."""
    steps = range(points)
    reserved = [peak * (n + 1) // points for n in steps]
    columns = {
        "event": [10 * n for n in steps],
        "requested": [value // 2 for value in reserved],
        "allocated": [value * 3 // 4 for value in reserved],
        "reserved": reserved,
    }
    return table("memory", columns, workload=workload, device=device, allocator=allocator)


def with_memory(rows: list[dict[str, Any]], *found: pd.DataFrame) -> Bundle:
    """Rows with these tables `memory` and no other details."""
    return Bundle(frame(rows), join([{"memory": one} for one in found]))
