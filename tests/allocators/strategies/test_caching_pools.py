# SPDX-License-Identifier: Apache-2.0
"""`caching` with private pools against placements of PyTorch's own allocator.

tests/data/caching/README.md says how they were made.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, PrivatePool, Trace
from tests.traces import make

MIB = 1 << 20
DATA = Path(__file__).parents[2] / "data" / "caching" / "private_pools.json.gz"
CASES: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))


def trace_of(case: dict[str, Any]) -> Trace:
    events = case["events"]
    streams, pools = np.array([row[3:5] for row in events], np.uint16).T
    trace = make(
        [row[:3] for row in events],
        stream=streams.copy(),
        pool=pools.copy(),
        pools=tuple(PrivatePool(*pool) for pool in case["pools"]),
        labels=("step",),
    )
    trace.validate()
    return trace


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_block_is_where_pytorch_puts_it(number: int) -> None:
    case = CASES[number]
    made = allocators.make(case["allocator"], allocators.SimulatedDevice(case["capacity"]))
    found = allocators.replay(trace_of(case), made, placements=True, keep=True)
    made.check()
    columns = (found.placements[name].tolist() for name in ("segment", "offset", "size"))
    expected = [tuple(row[5:]) for row in case["events"] if row[0] == ALLOC]
    assert list(zip(*columns, strict=True)) == expected
    stats = found.stats
    assert (stats.reserved, stats.retries, stats.failures) == (
        case["reserved"],
        case["retries"],
        case["failures"],
    )
    device = found.device
    assert device.refused_calls == case["refused_calls"]
    if "expandable" not in case["allocator"]:
        assert device.free_calls == case["free_calls"]


def test_the_cases_have_every_kind_of_event_and_choice() -> None:
    versions = {case["torch"] for case in CASES}
    assert versions == {"2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0"}
    for version in versions:
        mine = [case for case in CASES if case["torch"] == version]
        assert {row[0] for case in mine for row in case["events"]} == set(range(10))
        assert any(pool[1] for case in mine for pool in case["pools"])
        assert version == "2.9.1" or any(pool[2] for case in mine for pool in case["pools"])
        assert any(case["retries"] for case in mine)


def test_garbage_collection_leaves_private_pools_alone() -> None:
    """A threshold of 45 MiB: 70 MiB are reserved when the third block is requested."""
    spec = "caching:conf=garbage_collection_threshold:0.3,per_process_memory_fraction:0.75"
    events = [(ALLOC, 0, 30 * MIB), (FREE, 0, 0), (ALLOC, 1, 40 * MIB), (ALLOC, 2, 50 * MIB)]
    for pool, reserved in ((0, 90), (1, 120)):
        pools = np.array([pool, pool, 0, 0], np.uint16)
        trace = make(events, pool=pools, pools=(PrivatePool("0.1"),))
        made = allocators.make(spec, allocators.SimulatedDevice(200 * MIB))
        allocators.replay(trace, made, keep=True)
        assert made.stats().reserved == reserved * MIB
