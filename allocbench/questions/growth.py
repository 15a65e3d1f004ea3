# SPDX-License-Identifier: Apache-2.0
"""Memory that grows from step to step: a leak, or a cache without an end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from allocbench.questions.failure import Failure, operators
from allocbench.workloads import MARK

_STEPS = 3
"""Steps before the last in each of which a group must have left blocks, to be seen as growing."""
_WINDOWS = 8  # of equal length, where a trace has too few steps


@dataclass(frozen=True)
class Growth:
    """Blocks of one operator and size that pile up: some of each of the last steps still live.

    blocks: those alive; size: bytes of each; steps: of how many steps, or stretches of the trace
    where it has no steps, there are some.
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
    """What was piling up when a request failed, the most bytes first.

    Blocks count that the trace never frees. Those of the first step are the program's own, and
    those of the last few may still be freed in time, so a group counts when each of the `_STEPS`
    steps before the last one has left some.
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
    found = [
        Growth(label, size, count.total(), len(count), of_steps)
        for (label, size), count in groups.items()
        if wanted <= count.keys()
    ]
    return sorted(found, key=lambda one: one.bytes, reverse=True)
