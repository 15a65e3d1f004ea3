# SPDX-License-Identifier: Apache-2.0
"""The null GPU's driver against what an H100 with driver 580.159.04 returned for the same calls."""

import functools
import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.workshop.gpu.driver.compare import differences
from tests.null_driver import environment
from tests.null_gpu import ROOT

MIB = 1 << 20
MEASURED = "benchmarks/results/gpu/nvidia-h100-80gb-hbm3-9cf8e0bc/driver/calls.json"
SAME = (
    "memory.bytes_by_size",
    "memory.bytes_by_size_fresh",
    "memory.small_allocations",
    "memory.bounds",
    "memory.pointers",
    "virtual.without_access",
    "virtual.retained",
    "pools.bytes_by_size",
    "pools.trims",
    "pools.fragmentation",
    "pools.wrong_calls",
    "pools.destroyed_pool",
    "pools.pool_destroyed_twice",
    "pools.default_pool",
    "contexts.forked",
)
"""Bytes, status codes and order are equal in each line."""


@functools.cache
def measured() -> dict[str, Any]:
    content = json.loads((ROOT / MEASURED).read_text())
    scenarios: dict[str, Any] = content["measured"]["scenarios"]
    return scenarios


def on_null_gpu(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.workshop.gpu.driver.scenarios", name],
        env=environment({"memory": 85017493504, "context": 552402944, "count": 1}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {"exit_code": done.returncode, "lines": lines}


@pytest.mark.parametrize("name", SAME)
def test_calls_return_what_an_h100_returned(name: str) -> None:
    found = {name: on_null_gpu(name)}
    assert list(differences({name: measured()[name]}, found)) == []


def test_managed_memory_takes_nothing_that_others_need() -> None:
    name = "memory.managed"
    found = {name: on_null_gpu(name)}
    unlike = {label: (one, ours) for _, label, one, ours in differences(measured(), found) if label}
    # On the H100, what was written there stays until others need it: 12 MiB are left after that.
    moved = ({"status": 0, "taken": 256}, {"status": 0, "taken": 0})
    assert unlike == {
        **dict.fromkeys(("write", "move to the host", "move to the GPU"), moved),
        "alloc of more than is free": ({"status": 0}, {"status": 2}),
        "afterwards": ({"taken": 12}, {"taken": 0}),
    }


def test_a_pool_reserves_as_much_for_random_calls_as_on_an_h100() -> None:
    name = "pools.random_calls"
    found = {line["label"]: line["peak"] for line in on_null_gpu(name)["lines"]}
    real = {line["label"]: line["peak"] for line in measured()[name]["lines"]}
    assert real.pop("all blocks") == 7040
    assert found.pop("all blocks") == 7104  # MiB; two pages of 32 MiB more
    assert found == real == {"small blocks": 64, "middle blocks": 2848, "large blocks": 13152}


def test_other_streams_get_what_a_stream_freed_only_after_it_ended() -> None:
    name = "pools.between_streams"
    one, other = measured()[name], on_null_gpu(name)
    labels = {label for _, label, _, _ in differences({name: one}, {name: other})}
    # Waits of one stream for an event of a busy one are not modelled.
    assert labels == {f"policies {policy:03b}, busy, event waited for" for policy in range(8)}
