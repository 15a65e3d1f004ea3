# SPDX-License-Identifier: Apache-2.0
"""Many random events through every strategy, from a roomy device to a starving one.

The check wrapper judges a million of them. The slower judge of `tests/judged.py` judges fewer here,
and as many as it is asked to by `make test-long EVENTS=10000000`.
"""

from __future__ import annotations

import pytest

from allocbench import allocators
from allocbench.workloads import Trace
from tests import judged, random_events

EVENTS, JUDGED = 10**6, 40_000


@pytest.fixture(scope="module")
def trace() -> Trace:
    return random_events.events(EVENTS)


@pytest.fixture(scope="module")
def short_trace() -> Trace:
    return random_events.events(JUDGED)


def test_a_million_random_events_break_no_rule(trace: Trace, name: str) -> None:
    info = allocators.info(name)
    device = random_events.device_for(trace, reuses=info.candidate)
    allocator = allocators.make(f"check:of={name}", device)
    result = allocators.replay(trace, allocator)
    assert result.stats.allocations + result.stats.failures == trace.allocs
    assert (result.stats.failures > 0) == info.candidate
    allocator.check()
    assert allocator.stats().requested == 0
    assert allocators.leaks(allocator) == []
    allocator.trim()
    assert allocator.device.reserved == 0


def test_no_placement_breaks_a_rule(short_trace: Trace, name: str) -> None:
    assert judged.judge(short_trace, name).allocations > JUDGED // 8
