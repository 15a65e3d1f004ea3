# SPDX-License-Identifier: Apache-2.0
"""One run of a sweep, in the process of a worker: its row, or its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from allocbench.base.text import one_line
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.replays.runner import Row
from allocbench.reports.rows.bundle import Key, Record
from allocbench.sweeps.file import record
from allocbench.workloads import Trace

Runner: TypeAlias = Callable[[Trace, Key, Effort], Row]


def attempt(runner: Runner, trace: Trace, key: Key, effort: Effort) -> Record:
    """The record of a run; if it raises any error, that of the error."""
    try:
        return record(key, runner(trace, key, effort))
    except Exception as error:  # any error concerns only this run
        return _failed(key, trace, f"{type(error).__name__}: {error}")


def died(key: Key, trace: Trace, failure: BaseException) -> Record:
    """The record of a run whose process died."""
    return _failed(key, trace, f"the process died: {type(failure).__name__}: {failure}")


def _failed(key: Key, trace: Trace, error: str) -> Record:
    """The record of a run without a result: a row that says why."""
    message = one_line(error)
    why = f"ended with an error: {message}"
    row = experiment.without_result(trace, key.allocator, key.device, why, workload=key.workload)
    return record(key, row, message)
