# SPDX-License-Identifier: Apache-2.0
"""RMM's resources place every block where RMM placed it (see data/rmm/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE
from tests.traces import make as trace_of

DATA = Path(__file__).parents[2] / "data/rmm"
CASES: list[dict[str, Any]] = json.loads((DATA / "cases.json").read_text())


def test_the_cases_cover_every_rule() -> None:
    assert len(CASES) == len(list(DATA.glob("*.csv.gz"))) >= 12
    for count in ("failures", "refused_calls"):
        assert sum(case[count] for case in CASES) > 20


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_block_for_block(case: dict[str, Any]) -> None:
    numbers = dict.fromkeys(("id", "size", "stream", "segment", "offset"), "Int64")
    events = pd.read_csv(DATA / f"{case['name']}.csv.gz", dtype={"op": "str"} | numbers)
    ops = events["op"].map({"a": ALLOC, "f": FREE})
    trace = trace_of(
        zip(ops, events["id"], events["size"].fillna(0), strict=True),
        stream=events["stream"].to_numpy(np.uint16),
    )
    device = allocators.SimulatedDevice(case["capacity"], addresses="up")
    allocator = allocators.make(case["allocator"], device)
    result = allocators.replay(trace, allocator, placements=True)
    allocator.check()

    wanted = events[events["op"] == "a"][["id", "segment", "offset"]]
    actual = pd.DataFrame(result.placements)[["block", "segment", "offset"]]
    assert actual.to_numpy().tolist() == wanted.to_numpy().tolist()
    assert {
        "failures": result.stats.failures,
        "device_mallocs": result.device.malloc_calls,
        "refused_calls": result.device.refused_calls,
        "device_frees": result.device.free_calls,
        "peak_reserved": result.stats.peak_reserved,
    }.items() <= case.items()
