# SPDX-License-Identifier: Apache-2.0
"""The phases of a program: load, warm-up, capture, steady. See `phases` for where they begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocbench.errors import UsageError
from allocbench.workloads import ALLOC, FREE, Trace
from allocbench.workloads.trace import MARK
from allocbench.workloads.vocabulary import CAPTURE_BEGIN, CAPTURE_END

WARM_UP_SHARE = 0.25
"""Share of the steps within which a step has to repeat for the warm-up to end there."""
FORM = "NAME=EVENT or NAME=stepN, separated by commas, as in load=0,steady=step3"


@dataclass(frozen=True)
class Phase:
    """The events from `begin` (inclusive) to `end` (exclusive), numbered from 0."""

    name: str
    begin: int
    end: int


def phases(trace: Trace) -> list[Phase]:
    """The phases of a program, in order; those without an alloc or a free are left out.

    load: the events before the first step, or before the first capture of a graph.
    warm-up: from the first step on, until a step requests the same sizes, in any order, as the one
        after it, if that is within the first quarter of the steps (WARM_UP_SHARE); otherwise the
        first step of several. It ends where the capture begins at the latest, and lasts until then
        if there is one.
    capture: from the beginning of the first capture to the end of the last one.
    steady: the rest.

    A trace without steps and captures has no phases: the list is empty.
    """
    steps, captures = _steps(trace), np.flatnonzero(trace.op == CAPTURE_BEGIN)
    if not len(steps) and not len(captures):
        return []
    begins: list[tuple[str, int]] = [("load", 0)]
    if len(captures):
        first = int(captures[0])
        if len(steps) and steps[0] < first:
            begins.append(("warm-up", steps[0]))
        begins.append(("capture", first))
        ends = np.flatnonzero(trace.op == CAPTURE_END)
        if len(ends):
            begins.append(("steady", int(ends[-1]) + 1))
    else:
        warm = _warm_up(trace, steps)
        if warm:
            begins.append(("warm-up", steps[0]))
        begins.append(("steady", steps[warm]))
    return _used(trace, begins)


def given(text: str, trace: Trace) -> list[Phase]:
    """The phases that a user states as in FORM; steps are numbered from 1.

    Raises UsageError for another form, a repeated name, a first phase that does not begin at event
    0, borders that do not ascend, and events, steps or phases that the trace does not have.
    """
    steps = _steps(trace)
    begins: list[tuple[str, int]] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*([\w-]+)=(step)?(\d+)\s*", item)
        if match is None:
            raise UsageError(f"--phases: '{item}' is not {FORM}")
        name, number = match[1], int(match[3])
        if name in dict(begins):
            raise UsageError(f"--phases: '{name}' is given twice")
        if match[2]:
            if not 1 <= number <= len(steps):
                raise UsageError(
                    f"--phases: '{item}': there is no step {number}; the trace has {len(steps)}"
                )
            number = steps[number - 1]
        if number >= len(trace):
            raise UsageError(
                f"--phases: '{item}': there is no event {number:,}; the trace has {len(trace):,}"
            )
        if not begins and number != 0:
            raise UsageError(f"--phases: the first phase must begin at event 0, not {number:,}")
        if begins and number <= begins[-1][1]:
            raise UsageError(
                f"--phases: '{name}' begins at event {number:,}, not after"
                f" '{begins[-1][0]}' at event {begins[-1][1]:,}"
            )
        begins.append((name, number))
    found = _used(trace, begins)
    empty = sorted({name for name, _ in begins} - {phase.name for phase in found})
    if empty:
        raise UsageError(f"--phases: '{empty[0]}' has no alloc and no free")
    return found


def _steps(trace: Trace) -> list[int]:
    found = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    return [int(event) for event in found]


def _warm_up(trace: Trace, steps: Sequence[int]) -> int:
    """How many steps the warm-up has."""
    sizes = [
        np.sort(trace.size[begin:end][trace.op[begin:end] == ALLOC])
        for begin, end in zip(steps, [*steps[1:], len(trace)], strict=True)
    ]
    latest = int(WARM_UP_SHARE * len(steps))
    for step in range(min(latest + 1, len(steps) - 1)):
        if np.array_equal(sizes[step], sizes[step + 1]):
            return step
    return min(1, len(steps) - 1)


def _used(trace: Trace, begins: Sequence[tuple[str, int]]) -> list[Phase]:
    """The phases with an alloc or a free; the events of the others belong to the one before.

    Those before the first one belong to it.
    """
    found: list[Phase] = []
    ends = [*(begin for _, begin in begins[1:]), len(trace)]
    for (name, begin), end in zip(begins, ends, strict=True):
        if np.any(trace.op[begin:end] <= FREE):
            found.append(Phase(name, begin if found else 0, end))
        elif found:
            found[-1] = Phase(found[-1].name, found[-1].begin, end)
    return found
