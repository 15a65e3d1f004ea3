# SPDX-License-Identifier: Apache-2.0
"""Memory that grows from step to step: a leak, or an unbounded cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from allocbench.questions.failure import Failure, operators
from allocbench.workloads import MARK

_STEPS = 3
"""A group grows if it left blocks in each of this many steps before the last."""
_WINDOWS = 8  # of equal length, for traces with too few steps


@dataclass(frozen=True)
class Growth:
    """Blocks of one operator and size that accumulate: each of the last steps left some alive.

    blocks: those alive; size: bytes of each; steps: number of steps with such blocks, or of
    stretches of the trace if it has no steps.
    """

    operator: str
    size: int
    blocks: int
    steps: int
    of_steps: bool

    @property
    def bytes(self) -> int:
        """Requested bytes of all of them."""
        return self.blocks * self.size


def growths(failure: Failure) -> list[Growth]:
    """What was accumulating when a request failed, most bytes first.

    Only blocks that the trace never frees count. Those of the first step belong to the program's
    lasting state, and those of the last few may still be freed later, so a group counts if each of
    the `_STEPS` steps before the last one left some.
    """
    workload, alive = failure.workload, failure.alive
    alive = alive[workload.last[alive] == len(workload.trace)]
    trace = workload.trace
    steps = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    of_steps = int(np.searchsorted(steps, failure.event)) > _STEPS + 1
    if not of_steps:
        steps = np.linspace(0, failure.event, _WINDOWS + 1)[:-1].astype(np.int64)
    last = int(np.searchsorted(steps, failure.event, side="right"))
    when = np.searchsorted(steps, workload.first[alive], side="right")
    groups: dict[tuple[str, int], Counter[int]] = {}
    labels = operators(workload, alive)
    for label, size, step in zip(labels, workload.size[alive], when, strict=True):
        groups.setdefault((label, int(size)), Counter())[int(step)] += 1
    wanted = set(range(last - _STEPS, last))
    kept_groups = [
        Growth(label, size, count.total(), len(count), of_steps)
        for (label, size), count in groups.items()
        if wanted <= count.keys()
    ]
    return sorted(kept_groups, key=lambda growth: growth.bytes, reverse=True)
