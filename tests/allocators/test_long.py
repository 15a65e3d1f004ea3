# SPDX-License-Identifier: Apache-2.0
"""Many random events through every strategy, from a roomy device to a starving one.

The check wrapper judges a million of them. The slower judge of `tests/judged.py` judges fewer here,
and as many as it is asked to by `make test-long EVENTS=10000000`.
"""

from typing import Any

import numpy as np
import pytest

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, Trace
from tests import judged, random_events
from tests.traces import make

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


TWO = [(ALLOC, 0, 1000), (ALLOC, 1, 1000), (FREE, 0, 0), (ALLOC, 2, 500)]


@pytest.mark.parametrize(
    ("offset", "size", "told"),
    [
        ([0, 1024, 0], [1024, 1024, 512], ""),
        ([0, 768, 0], [1024, 1024, 512], "block 1 overlaps the one before"),
        ([1024, 0, 1024], [1024, 1280, 512], "block 1 overlaps the one after"),
        ([0, 1024, 1024], [1024, 1024, 512], "block 2 overlaps the one after"),
        ([0, 1024, 0], [1024, 768, 512], "block 1 has 768 bytes of 1000"),
        ([0, 1024, 128], [1024, 1024, 512], "block 2 is at offset 128"),
    ],
)
def test_the_judge_of_placements_names_a_broken_rule(
    offset: list[int], size: list[int], told: str
) -> None:
    judge = judged.PlacementJudge(make(TWO))
    columns: dict[str, Any] = {"block": range(3), "segment": [0] * 3, "offset": offset}
    columns = {name: np.array(column) for name, column in (columns | {"size": size}).items()}
    if told:
        with pytest.raises(AssertionError, match=told):
            judge(columns)
    else:
        judge(columns)
        judge.finish()
        assert (judge.served, judge.frees, judge.peak_requested) == (3, 1, 2000)
