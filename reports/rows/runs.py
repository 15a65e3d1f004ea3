# SPDX-License-Identifier: Apache-2.0
"""The file of a sweep: JSON lines, one for each run.

A line is an object of `key` (workload, trace, allocator, device, code), `row` (a result row) and
`error` (null, or what went wrong; the row then says so as well, and has no metrics). A killed
process leaves at most its last line incomplete; that line is ignored.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from allocbench.reports.output import ResultError
from allocbench.reports.rows.results import SCHEMA

Record: TypeAlias = dict[str, Any]
BEGIN = b'{"key"'
"""How every line begins."""


@dataclass(frozen=True)
class Key:
    """The identity of a run: its names, and hashes of the trace and the code."""

    workload: str
    trace: str
    allocator: str
    device: str
    code: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What results depend on, without the workload's name."""
        return self.trace, self.allocator, self.device, self.code


def key_of(record: Record) -> Key:
    """The key of a record."""
    return Key(**record["key"])


def parse(text: bytes, where: str) -> list[Record]:
    """The records of complete lines; raises ResultError, beginning with `where`, for others."""
    rows = []
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
        try:
            record = json.loads(line)
            key_of(record)
            if not isinstance(record["row"], dict):
                raise TypeError
            rows.append({name: record[name] for name in ("key", "row", "error")})
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ResultError(f"{where}: line {number}: not a sweep result") from error
    return rows


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """Records as a frame: the columns of `reports.rows.results`, then trace, code and error.

    If a run appears twice because it was retried, the later one counts.
    """
    latest = {key_of(record).identity: record for record in records}
    rows = [
        record["row"]
        | {name: record["key"][name] for name in ("trace", "code")}
        | {"error": record["error"]}
        for record in latest.values()
    ]
    return pd.DataFrame(rows, columns=[*SCHEMA, "trace", "code", "error"])


def comparable(records: Sequence[Record]) -> list[Record]:
    """The records that can be in one table, by workload, device and allocator.

    A workload's name may refer to several traces, and several versions may have made the same run:
    only the last trace of each workload and the last record of each run are used.
    """
    traces = {record["key"]["workload"]: record["key"]["trace"] for record in records}
    kept: dict[tuple[str, str, str], Record] = {}
    for record in records:
        key = key_of(record)
        if key.trace == traces[key.workload]:
            kept[key.workload, key.device, key.allocator] = record
    return [kept[run] for run in sorted(kept)]  # the file has them in the order in which they ended
