# SPDX-License-Identifier: Apache-2.0
"""bfc places every block where TensorFlow's own allocator placed it (see data/bfc/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK
from tests.traces import make as trace_of

DATA = Path(__file__).parents[2] / "data/bfc"
CASES: list[dict[str, Any]] = json.loads((DATA / "cases.json").read_text())


def test_the_cases_cover_every_rule() -> None:
    assert len(CASES) == len(list(DATA.glob("*.csv.gz"))) >= 12
    for count in ("failures", "refused_mallocs", "device_frees"):
        assert sum(case[count] for case in CASES) > 20


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_block_for_block(case: dict[str, Any]) -> None:
    numbers = dict.fromkeys(("id", "size", "segment", "offset", "granted"), "Int64")
    events = pd.read_csv(DATA / f"{case['name']}.csv.gz", dtype={"op": "str"} | numbers)
    ops = events["op"].map({"a": ALLOC, "f": FREE, "s": MARK})
    columns = (ops, events["id"].fillna(0), events["size"].fillna(0))
    trace = trace_of(zip(*columns, strict=True), labels=("step",))
    device = allocators.SimulatedDevice(case["capacity"], addresses="up", alignment=4096)
    allocator = allocators.make(case["allocator"], device)
    result = allocators.replay(trace, allocator, placements=True)
    allocator.check()

    wanted = events[events["op"] == "a"][["id", "segment", "offset", "granted"]]
    actual = pd.DataFrame(result.placements)[["block", "segment", "offset", "size"]]
    assert actual.to_numpy().tolist() == wanted.to_numpy().tolist()
    stats, calls = allocator.stats(), device.stats()
    assert {
        "failures": stats.failures,
        "device_mallocs": calls.malloc_calls,
        "refused_mallocs": calls.refused_calls,
        "device_frees": calls.free_calls,
        "peak_allocated": stats.peak_allocated,
        "peak_reserved": stats.peak_reserved,
    }.items() <= case.items()
