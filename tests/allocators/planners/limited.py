# SPDX-License-Identifier: Apache-2.0
"""Plans of the exact planner whose work, not time, is limited."""

from collections.abc import Sequence
from itertools import count

import numpy as np

from allocbench.allocators import PlanResult, _core
from allocbench.allocators.planning import Report
from tests.allocators.planners.judge import Block


def plan_until(
    blocks: Sequence[Block], ticks: int, report: Report | None = None, alignment: int = 1
) -> tuple[PlanResult, int]:
    """A checked plan with a clock that ticks when it is read, and how often it was read."""
    sizes, first, last = (np.array(field) for field in zip(*blocks, strict=True))
    arrays = sizes.astype(np.uint64), first.astype(np.uint32), last.astype(np.uint32)
    clock = count()
    result = _core.plan(
        "exact", *arrays, alignment, float(ticks), report, lambda: float(next(clock))
    )
    found = PlanResult("exact", *result, seconds=0)
    low, high = found.offsets, found.offsets + arrays[0]
    assert found.height == high.max()
    assert not (low % np.uint64(alignment)).any()
    for index in range(len(blocks)):  # faster than the judge
        others = slice(index + 1, None)
        alive = (first[others] < last[index]) & (first[index] < last[others])
        assert not (alive & (low[others] < high[index]) & (low[index] < high[others])).any()
    return found, next(clock)
