# SPDX-License-Identifier: Apache-2.0
"""Annotated ranges become marks, and each step counts once."""

from __future__ import annotations

import pytest

from allocbench.workloads.importers.labels import marks_of

OF_THE_OPTIMIZER = "allocbench.optimizer_step"


@pytest.mark.parametrize(
    ("annotations", "marks"),
    [
        (["ProfilerStep#0", "step", OF_THE_OPTIMIZER], ["step"]),
        (["step", "ProfilerStep#0", "step", "forward"], ["step", "forward"]),
        (["step", OF_THE_OPTIMIZER, "step"], ["step", "step"]),
        ([OF_THE_OPTIMIZER, "forward", OF_THE_OPTIMIZER], ["step", "forward", "step"]),
        (["steps", "ProfilerSteps"], ["steps", "ProfilerSteps"]),
        ([], []),
    ],
)
def test_each_step_counts_once(annotations: list[str], marks: list[str]) -> None:
    """A program may annotate steps itself, use the profiler, and be recorded by allocbench."""
    found = marks_of(enumerate(annotations))
    assert [name for _, name in found] == marks
    assert [when for when, _ in found] == sorted(when for when, _ in found)
