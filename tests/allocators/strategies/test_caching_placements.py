# SPDX-License-Identifier: Apache-2.0
"""caching places every block where PyTorch's allocator placed it (see data/caching/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK
from tests.traces import make as trace_of

DATA = Path(__file__).parents[2] / "data/caching"
CASES: list[dict[str, Any]] = json.loads((DATA / "cases.json").read_text())


def test_the_cases_cover_every_rule() -> None:
    assert len(CASES) == len(list(DATA.glob("*.csv.gz"))) >= 20
    versions = {"2.9.1", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"}
    assert {case["torch"] for case in CASES} == versions
    for count in ("failures", "retries", "refused_calls", "device_frees", "device_unmaps"):
        assert sum(case[count] for case in CASES) > 20


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_block_for_block(case: dict[str, Any]) -> None:
    numbers = dict.fromkeys(("id", "size", "stream", "segment", "offset", "granted"), "Int64")
    events = pd.read_csv(DATA / f"{case['name']}.csv.gz", dtype={"op": "str"} | numbers)
    ops = events["op"].map({"a": ALLOC, "f": FREE, "m": MARK})
    trace = trace_of(
        zip(ops, events["id"].fillna(0), events["size"].fillna(0), strict=True),
        stream=events["stream"].fillna(0).to_numpy(np.uint16),
        labels=("step",),
    )
    device = allocators.SimulatedDevice(case["capacity"], addresses="up")
    allocator = allocators.make(case["allocator"], device)
    result = allocators.replay(trace, allocator, placements=True)
    allocator.check()

    wanted = events[events["op"] == "a"][["id", "segment", "offset", "granted"]]
    found = pd.DataFrame(result.placements)[["block", "segment", "offset", "size"]]
    assert found.to_numpy().tolist() == wanted.to_numpy().tolist()
    stats, calls = result.stats, result.device
    assert {
        "failures": stats.failures,
        "retries": stats.retries,
        "device_mallocs": calls.malloc_calls,
        "refused_calls": calls.refused_calls,
        "device_frees": calls.free_calls,
        "device_maps": calls.map_calls,
        "device_unmaps": calls.unmap_calls,
        "peak_allocated": stats.peak_allocated,
        "peak_reserved": stats.peak_reserved,
    }.items() <= case.items()
