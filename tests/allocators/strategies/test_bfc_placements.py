# SPDX-License-Identifier: Apache-2.0
"""bfc places every block where TensorFlow and ONNX Runtime placed it (see data/bfc/README.md)."""

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
    known = wanted.columns[wanted.notna().all()]  # ONNX Runtime does not tell the size of a chunk
    actual.columns = wanted.columns
    assert actual[known].to_numpy().tolist() == wanted[known].to_numpy().tolist()
    stats, calls = allocator.stats(), device.stats()
    assert {
        "failures": stats.failures,
        "device_mallocs": calls.malloc_calls,
        "refused_mallocs": calls.refused_calls,
        "device_frees": calls.free_calls,
        "peak_reserved": stats.peak_reserved,
    }.items() <= case.items()
    assert case.get("peak_allocated", stats.peak_allocated) == stats.peak_allocated


@pytest.mark.parametrize("extend", ["doubling", "requested"])
def test_shrinkage_returns_the_regions_that_onnx_runtime_returns(extend: str) -> None:
    """The recorded address of a block minus its offset here is the same for a whole segment."""
    events = pd.read_csv(DATA / f"shrink/{extend}.csv.gz", dtype={"address": "UInt64"})
    ops = events["op"].map({"a": ALLOC, "f": FREE, "s": MARK})
    columns = (ops, events["id"].fillna(0), events["size"].fillna(0))
    trace = trace_of(zip(*columns, strict=True), labels=("step",))
    device = allocators.SimulatedDevice("1TiB", addresses="up", alignment=4096)
    spec = f"bfc:preset=onnxruntime,shrink=true,memory_limit=16GiB,extend={extend}"
    result = allocators.replay(trace, allocators.make(spec, device), placements=True)
    starts = pd.DataFrame(
        {
            "segment": result.placements["segment"],
            "start": events["address"].dropna().astype(int).to_numpy()
            - result.placements["offset"].astype(int),
        }
    )
    assert result.device.free_calls >= 5
    assert starts.groupby("segment")["start"].nunique().eq(1).all()
