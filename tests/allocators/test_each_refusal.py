# SPDX-License-Identifier: Apache-2.0
"""The device refuses each call in turn: at most one request fails, and nothing is lost."""

from itertools import count

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import Trace, catalog

EVENTS = 150
WORKLOADS = {
    "training": "gpt2-train",
    "inference": "vit-serve",
    "serving": "serve-paged",
    "synthetic": "random",
    "several streams": "ping-pong",
    "hostile": "bomb-bfc",
}
MOST_CALLS = 500


def beginning(trace: Trace) -> Trace:
    """The first events, with blocks of at most 8 MiB, so that a small device serves them."""
    part = slice(0, EVENTS)
    size = np.where(trace.size[part] > 0, 1 + trace.size[part] % (8 << 20), 0).astype(np.uint64)
    return Trace(
        op=trace.op[part].copy(),
        block=trace.block[part].copy(),
        size=size,
        stream=trace.stream[part].copy(),
        labels=trace.labels,
    )


@pytest.mark.parametrize("kind", WORKLOADS)
def test_each_call_refused_in_turn(kind: str, name: str) -> None:
    trace = beginning(catalog.load(WORKLOADS[kind]))
    trace.validate()
    for call in count(1):
        device = allocators.SimulatedDevice("16GiB", fail_call=call)
        allocator = allocators.make(f"check:of={name}", device)
        result = allocators.replay(trace, allocator)
        assert result.stats.failures <= 1
        assert result.stats.allocations + result.stats.failures == trace.allocs
        allocator.check()
        if device.stats().refused_calls == 0:
            break
        blocks = [allocator.allocate(size) for size in (1, 5000, 3 << 20)]
        for address in blocks:
            allocator.deallocate(address)
        allocator.trim()
        allocator.check()
        assert device.reserved == 0
        assert call < MOST_CALLS
    assert call > 1, "the workload calls the device"
