# SPDX-License-Identifier: Apache-2.0
"""How many steps of a program a trace has, and whether its memory still grew in the last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocbench.base import units
from allocbench.workloads import MARK, Trace


@dataclass(frozen=True)
class Steps:
    """The optimizer steps of a trace. Bytes of live requested memory.

    peaks: the largest load from the end of the previous step (or the start of the trace) to the end
    of each step. ends: the load at the end of each step. after: the largest load after the last
    step, or 0.
    """

    peaks: tuple[int, ...]
    ends: tuple[int, ...]
    after: int

    @property
    def grew(self) -> int:
        """Bytes by which the peak of the last step exceeds that of every earlier one."""
        if len(self.peaks) < 2:
            return 0
        return max(0, self.peaks[-1] - max(self.peaks[:-1]))

    @property
    def kept(self) -> int:
        """The fewest bytes that any step except the first leaves behind: a leak, or a cache."""
        grown = np.diff(self.ends[1:])
        return max(0, int(grown.min())) if len(grown) else 0


def steps(trace: Trace) -> Steps:
    """The steps of a trace in which the marks named "step" end the optimizer steps."""
    load = trace.load
    marks = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label)).tolist()
    starts = [0, *marks][: len(marks)]
    after = load[marks[-1] :] if marks else load
    return Steps(
        peaks=tuple(int(load[a : b + 1].max()) for a, b in zip(starts, marks, strict=True)),
        ends=tuple(int(load[mark]) for mark in marks),
        after=int(after.max(initial=0)),
    )


def sentences(steps: Steps, limit: int | None) -> list[str]:
    """Notes on the recorded steps for the user, one per line.

    limit: the number of steps after which the program was stopped, or None.
    """
    seen = len(steps.peaks)
    if not seen:
        return ["it ran to the end without an optimizer step"]
    count = f"{seen} optimizer step{'s' * (seen > 1)}"
    ended = limit is not None and seen >= limit
    top = max(steps.peaks)
    where = steps.peaks.index(top) + 1
    warm_up = "the first a warm-up" if seen > 1 else "which is a warm-up"
    if steps.grew:
        peak = f"memory still grew in the last one, by {units.size(steps.grew)}: try more --steps"
    elif where < seen:
        peak = f"the highest load, {units.size(top)}, came in step {where}, and no later step"
        peak += " needed more"
    else:
        peak = f"the highest load is {units.size(top)}"
    lines = [f"{count}, {warm_up}; {peak}"]
    if steps.kept:
        lines.append(
            f"every step leaves {units.size(steps.kept)} or more behind: a leak, or a cache"
        )
    if ended:
        lines.append(
            "it was stopped there: evaluation, checkpoints and longer sequences that come later"
            " were not seen"
        )
    elif steps.after > top:
        lines.append(
            f"the highest load, {units.size(steps.after)}, came after the last step: evaluation, "
            "or a checkpoint"
        )
    return lines
