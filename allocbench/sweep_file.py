# SPDX-License-Identifier: Apache-2.0
"""The results of a sweep: a file of JSON lines to which each run adds one, as it ends.

A line is an object of `key` (workload, trace, allocator, device, code), `row` (a result row, or
null) and `error` (null, or what went wrong). A process that is killed leaves at most its last line
unfinished; that line is cut off when the file is opened again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from allocbench import __version__
from allocbench.allocators import _core
from allocbench.errors import UsageError
from allocbench.reports.results import KEY, SCHEMA
from allocbench.workloads import Trace

Record: TypeAlias = dict[str, Any]
_DIGITS = 16  # of a hash


@dataclass(frozen=True)
class Key:
    """What a run is told apart by: the names and, by hash, the trace and the code."""

    workload: str
    trace: str
    allocator: str
    device: str
    code: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What results depend on; not the workload's name."""
        return self.trace, self.allocator, self.device, self.code


def fingerprint(trace: Trace) -> str:
    """A hash of all that a replay sees of a trace."""
    digest = hashlib.sha256(str(trace.step_label).encode())
    for array in (trace.op, trace.block, trace.size, trace.stream):
        digest.update(array.tobytes())
    return digest.hexdigest()[:_DIGITS]


@cache
def code_version() -> str:
    """The version of allocbench and a hash of its native core."""
    core = hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()
    return f"{__version__}+{core[:_DIGITS]}"


def record(key: Key, row: dict[str, Any] | None, error: str | None = None) -> Record:
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
        with file.open("rb+") as text:
            whole = text.read()
            end = whole.rfind(b"\n") + 1
            records = _parsed(path, whole[:end])
            if end < len(whole):
                if not records and not whole.startswith(b'{"key"'):
                    raise UsageError(f"{path}: line 1: no result of a sweep")
                text.truncate(end)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from error
    return records


def append(path: str, one: Record) -> None:
    """Add a record, and see it written to the disk."""
    with Path(path).open("ab") as file:
        file.write(json.dumps(one, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def key_of(one: Record) -> Key:
    """The key of a record."""
    return Key(**one["key"])


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """Records as a frame: the columns of `allocbench.reports.results`, then trace, code and error.

    Where a run is there twice, because it was tried again, the later one counts. A run with an
    error has the columns of its key, and null in all others.
    """
    latest = {key_of(one).identity: one for one in records}
    rows = []
    for one in latest.values():
        row = one["row"] or {name: one["key"][name] for name in KEY}
        more = {name: one["key"][name] for name in ("trace", "code")}
        rows.append(row | more | {"error": one["error"]})
    return pd.DataFrame(rows, columns=[*SCHEMA, "trace", "code", "error"])


def _parsed(path: str, text: bytes) -> list[Record]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            one = json.loads(line)
            key_of(one)
            found.append({name: one[name] for name in ("key", "row", "error")})
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path}: line {number}: no result of a sweep") from error
    return found
