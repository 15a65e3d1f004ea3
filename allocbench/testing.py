# SPDX-License-Identifier: Apache-2.0
"""Tests of how much GPU memory code needs, on machines with and without a GPU.

    @limit_peak("20GiB", card="l4")
    def test_a_training_step(): ...

The function is called in a process of its own, on a null GPU of that card, and the test fails with
what holds the memory if PyTorch reserves more. With pytest, the marker `limit_peak` does the same
for tests with fixtures, and compares with stored peaks (see `allocbench.pytest_plugin`).

    with limit_peak("2GiB"): ...

limits a block of a process that has a GPU, real or null, to what it allocates on top.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from allocbench.allocators.devices import parse_bytes
from allocbench.base import units
from allocbench.errors import UsageError
from allocbench.programs import functions
from allocbench.programs.program import DEFAULT_DEVICE, ProgramSettings
from allocbench.questions import peaks

INSIDE = "ALLOCBENCH_INSIDE_LIMIT_PEAK"
"""Variable that is set in the process where the limited code itself runs."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


class PeakError(AssertionError):
    """Code needs more memory than allowed; the message says what holds it."""


def is_inside() -> bool:
    """Whether this process was started to run limited code."""
    return INSIDE in os.environ


def settings_for(card: str | None) -> ProgramSettings:
    """How code is run: on a named card, such as "l4", or on the default one."""
    device = f"null:{card}" if card else DEFAULT_DEVICE
    return ProgramSettings(device=device, steps=None, quiet=True, variables={INSIDE: "1"})


class limit_peak:  # noqa: N801
    """A decorator of functions without arguments, and a context manager.

    limit: bytes, as "20GiB". card: where a decorated function runs, such as "l4"; None: an H200.

    Raises PeakError if more is needed, and UsageError for a limit that is not a size.
    """

    def __init__(self, limit: str | int, *, card: str | None = None) -> None:
        self._limit, self._card = parse_bytes(limit), card

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R | None]:
        """The function, run in a process of its own; it returns None there."""

        @wraps(function)
        def limited(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
            if is_inside():
                return function(*args, **kwargs)

            def call() -> object:
                return function(*args, **kwargs)

            call.__qualname__ = function.__qualname__
            with functions.program_of(call, settings_for(self._card)) as workload:
                peak, trace = peaks.run(workload)
            if complaint := peaks.above_limit(peak, trace, self._limit):
                raise PeakError(complaint)
            return None

        return limited

    def __enter__(self) -> limit_peak:
        """Begin to count; raises UsageError where PyTorch has no GPU."""
        import torch

        if not torch.cuda.is_available():
            raise UsageError(
                "limit_peak as a block needs a process with a GPU, real or null: decorate a "
                "function, or run this with `allocbench record --device null:l4`"
            )
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_allocated()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Compare what the block allocated in addition with the limit."""
        import torch

        if kind is not None:
            return
        torch.cuda.synchronize()
        needed = torch.cuda.max_memory_allocated() - self._before
        if needed > self._limit:
            raise PeakError(
                f"the block allocates {units.size(needed)} at its peak, "
                f"{units.size(needed - self._limit)} above the limit of {units.size(self._limit)}"
            )


def check_marked(
    workload: Any, limit: str | int | None, baseline: peaks.Peak | None, percent: float
) -> peaks.Peak:
    """The peak of a program; raises PeakError if it is above a limit or a baseline."""
    peak, trace = peaks.run(workload)
    complaint = peaks.above_limit(peak, trace, parse_bytes(limit)) if limit is not None else None
    if complaint is None and baseline is not None:
        complaint = peaks.above_baseline(peak, baseline, percent)
    if complaint is not None:
        raise PeakError(complaint)
    return peak
