# SPDX-License-Identifier: Apache-2.0
"""Every block is where the original placed it: bfc beside TensorFlow and ONNX Runtime, caching
beside PyTorch's allocator, and RMM's resources (see the README of each folder of data).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK, Trace
from tests.traces import make as trace_of

DATA = Path(__file__).parents[2] / "data"
ALIGNMENT = {"bfc": 4096, "caching": 2 << 20, "rmm": 2 << 20}
"""Of the segments of the device, by folder."""
CASES: list[tuple[str, dict[str, Any]]] = [
    (folder, case)
    for folder in ALIGNMENT
    for case in json.loads((DATA / folder / "cases.json").read_text())
]


def recorded(path: Path) -> tuple[pd.DataFrame, Trace]:
    """The rows of a file, and its events as a trace."""
    numbers = ("id", "size", "stream", "segment", "offset", "granted")
    types = dict.fromkeys(numbers, "Int64") | {"op": "str", "address": "UInt64"}
    events = pd.read_csv(path, dtype=types)
    ops = events["op"].map({"a": ALLOC, "f": FREE, "s": MARK, "m": MARK})
    streams = events.get("stream", pd.Series(0, events.index)).fillna(0)
    columns = (ops, events["id"].fillna(0), events["size"].fillna(0))
    trace = trace_of(
        zip(*columns, strict=True), stream=streams.to_numpy(np.uint16), labels=("step",)
    )
    return events, trace


@pytest.mark.parametrize(
    ("folder", "least", "counts"),
    [
        ("bfc", 12, ("failures", "refused_mallocs", "device_frees")),
        ("caching", 20, ("failures", "retries", "refused_calls", "device_frees", "device_unmaps")),
        ("rmm", 12, ("failures", "refused_calls")),
    ],
)
def test_the_cases_cover_every_rule(folder: str, least: int, counts: tuple[str, ...]) -> None:
    cases = [case for of, case in CASES if of == folder]
    assert len(cases) == len(list((DATA / folder).glob("*.csv.gz"))) >= least
    for count in counts:
        assert sum(case[count] for case in cases) > 20
    if folder == "caching":
        versions = {"2.9.1", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"}
        assert {case["torch"] for case in cases} == versions


@pytest.mark.parametrize(
    ("folder", "case"), CASES, ids=[f"{folder}-{case['name']}" for folder, case in CASES]
)
def test_block_for_block(folder: str, case: dict[str, Any]) -> None:
    events, trace = recorded(DATA / folder / f"{case['name']}.csv.gz")
    device = allocators.SimulatedDevice(
        case["capacity"], addresses="up", alignment=ALIGNMENT[folder]
    )
    allocator = allocators.make(case["allocator"], device)
    result = allocators.replay(trace, allocator, placements=True)
    allocator.check()

    names = {"id": "block", "segment": "segment", "offset": "offset", "granted": "size"}
    wanted = events[events["op"] == "a"].filter(list(names))
    wanted = wanted[wanted.columns[wanted.notna().all()]]  # some do not tell the size of a block
    assert {"id", "segment", "offset"} <= {*wanted}
    actual = pd.DataFrame(result.placements)[[names[str(name)] for name in wanted]]
    assert actual.to_numpy().tolist() == wanted.to_numpy().tolist()
    stats, calls = result.stats, result.device
    counted = {
        "failures": stats.failures,
        "retries": stats.retries,
        "device_mallocs": calls.malloc_calls,
        "refused_mallocs": calls.refused_calls,
        "refused_calls": calls.refused_calls,
        "device_frees": calls.free_calls,
        "device_maps": calls.map_calls,
        "device_unmaps": calls.unmap_calls,
        "peak_allocated": stats.peak_allocated,
        "peak_reserved": stats.peak_reserved,
    }
    told = counted.keys() & case.keys()
    assert len(told) >= 5
    assert {name: counted[name] for name in told} == {name: case[name] for name in told}


@pytest.mark.parametrize("extend", ["doubling", "requested"])
def test_shrinkage_returns_the_regions_that_onnx_runtime_returns(extend: str) -> None:
    """The recorded address of a block minus its offset here is the same for a whole segment."""
    events, trace = recorded(DATA / f"bfc/shrink/{extend}.csv.gz")
    device = allocators.SimulatedDevice("1TiB", addresses="up", alignment=4096)
    spec = f"bfc:preset=onnxruntime,shrink=true,memory_limit=16GiB,extend={extend}"
    result = allocators.replay(trace, allocators.make(spec, device), placements=True)
    addresses = events["address"].dropna().astype(int).to_numpy()
    starts = pd.Series(addresses - result.placements["offset"].astype(int))
    assert result.device.free_calls >= 5
    assert starts.groupby(result.placements["segment"]).nunique().eq(1).all()
