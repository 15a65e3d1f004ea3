# SPDX-License-Identifier: Apache-2.0
"""A million random events through every strategy, each checked by the check wrapper."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, Trace

EVENTS = 10**6
LIVE = 800


@pytest.fixture(scope="module")
def trace() -> Trace:
    """About LIVE blocks at a time of 1 B to 8 MiB, log-uniform; frees are drawn uniformly."""
    drawn = random.Random(8)
    top = math.log(8 << 20)
    op, block, size = bytearray(EVENTS), np.zeros(EVENTS, np.uint32), np.zeros(EVENTS, np.uint64)
    live: list[int] = []
    blocks = 0
    for index in range(EVENTS):
        if not live or drawn.random() < 1 - len(live) / (2 * LIVE):
            op[index], block[index] = ALLOC, blocks
            size[index] = int(math.exp(top * drawn.random()))
            live.append(blocks)
            blocks += 1
        else:
            victim = int(drawn.random() * len(live))
            live[victim], live[-1] = live[-1], live[victim]
            op[index], block[index] = FREE, live.pop()
    actual = Trace(np.frombuffer(op, np.uint8), block, size, np.zeros(EVENTS, np.uint16))
    actual.validate()
    return actual


def test_a_million_random_events_break_no_rule(trace: Trace, name: str) -> None:
    info = allocators.info(name)
    capacity = "384MiB" if info.candidate else "1TiB"  # small, so that some requests fail
    allocator = allocators.make(f"check:of={name}", allocators.SimulatedDevice(capacity))
    result = allocators.replay(trace, allocator)
    assert result.stats.allocations + result.stats.failures == trace.allocs
    assert (result.stats.failures > 0) == info.candidate
    allocator.check()
    assert allocator.stats().requested == 0
    assert allocators.leaks(allocator) == []
    allocator.trim()
    assert allocator.device.reserved == 0
