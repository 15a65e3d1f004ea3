# SPDX-License-Identifier: Apache-2.0
"""The file of a sweep, opened to add to it, and the runs that workers make for it.

`allocbench.reports.rows.bundle` says what is in the file.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from allocbench import __version__
from allocbench.allocators import _core
from allocbench.base.text import one_line
from allocbench.errors import UsageError
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.replays.recorded_settings import settings_of, version_of
from allocbench.replays.runner import Row, outside_of
from allocbench.reports.rows import ResultError
from allocbench.reports.rows.bundle import BEGIN, Key, Record, parse
from allocbench.workloads import Trace

_DIGITS = 16  # of a hash


def fingerprint(trace: Trace) -> str:
    """A hash of all that a replay sees of a trace, and all that it is told of the recording."""
    told = [
        *(trace.step_label, trace.provenance.live_at_start, trace.coverage, trace.pools),
        *(sorted(settings_of(trace).items()), version_of(trace)),
        sorted(outside_of(trace).items()),
    ]
    digest = hashlib.sha256(repr(told).encode())
    layout = vars(trace.layout) if trace.layout is not None else {}
    arrays = {name: getattr(trace, name) for name in ("op", "block", "size", "stream", "pool")}
    for name, array in {**arrays, **layout}.items():
        if array is not None:
            digest.update(f"{name} {np.size(array)} ".encode() + np.asarray(array).tobytes())
    return digest.hexdigest()[:_DIGITS]


@cache
def code_version() -> str:
    """The version of allocbench and a hash of its native core."""
    core = hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()
    return f"{__version__}+{core[:_DIGITS]}"


def record(key: Key, row: dict[str, Any], error: str | None = None) -> Record:
    """A line as an object."""
    return {"key": asdict(key), "row": row, "error": error}


def open_records(path: str) -> list[Record]:
    """The records of a file, which may not exist yet; cuts off an unfinished last line.

    Raises UsageError for a file that holds anything else, or cannot be read or written.
    """
    file = Path(path)
    try:
        if not file.exists():
            file.touch()
        if not file.is_file():  # a device or a pipe cannot be read back
            raise UsageError(f"{path}: cannot add results: not a regular file")
        with file.open("rb+") as text:
            whole = text.read()
            end = whole.rfind(b"\n") + 1
            records = parse(whole, path)
            if end < len(whole):
                if not records and not whole.startswith(BEGIN):
                    raise UsageError(f"{path}: line 1: not a sweep result")
                text.truncate(end)
    except ResultError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from error
    return records


def append(path: str, record: Record) -> None:
    """Add a record and flush it to the disk: the whole line or, on an error, none of it.

    Raises UsageError when it cannot be written.
    """
    left = memoryview(json.dumps(record, allow_nan=False).encode() + b"\n")
    try:
        with Path(path).open("ab", buffering=0) as file:
            end = file.tell()
            try:
                while left:  # a nearly full disk stores a part of it
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{path}: cannot write: {reason}; the results before are kept") from error


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
