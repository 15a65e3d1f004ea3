# SPDX-License-Identifier: Apache-2.0
"""Details: the tidy tables of charts that need more than a flat result row.

Each table is a frame keyed by `RUN` (a result row) or by `WORKLOAD`. `TABLES` is the only place
that names their columns. A report can also be made from rows alone; it then lacks the charts whose
tables are empty, and says so.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from allocbench.base.text import definitions
from allocbench.reports.rows import ResultError

Kind: TypeAlias = str  # of `_DTYPES`
Details: TypeAlias = Mapping[str, pd.DataFrame]

RUN = ("workload", "device", "allocator")
WORKLOAD = ("workload",)
_DTYPES = {
    "text": np.dtype(object),
    "whole": np.dtype(np.int64),
    "number": np.dtype(np.float64),
    "flag": np.dtype(np.bool_),
}


@dataclass(frozen=True)
class TableSpec:
    """One table: its key, its other columns with their types, and what a row means."""

    key: tuple[str, ...]
    columns: Mapping[str, Kind]
    meaning: str

    @property
    def all(self) -> dict[str, Kind]:
        """Every column with its type, key columns first."""
        return {**dict.fromkeys(self.key, "text"), **self.columns}


_TABLES = """
memory of a run: event requested allocated reserved (whole)
    Bytes after an event. Each of a few hundred intervals keeps the events with the lowest and the
    highest value of each column, so that no peak is lost.
moments of a run: event (whole); internal_fragmentation external_fragmentation (number);
  device_calls (whole); device_seconds (number)
    The state after evenly spaced events; device calls and seconds are totals since the start.
free_blocks of a run: event size_class blocks bytes (whole)
    The free blocks after an event, by size: from 2^size_class bytes up to twice that.
latency of a run: call (text); quantile seconds (number)
    Quantiles of the host seconds of single calls, dense at the upper end.
scaling of a run: call (text); live_from live_to (whole); median p99 (number); count (whole)
    Host seconds of the calls made while `live_from` up to `live_to` blocks were alive.
instants of a run: event (whole)
    The events after which `ranges` and `blocks` are complete.
ranges of a run: address size first last (whole); mapped (flag)
    Memory held from the device, from event `first` up to but not including `last`: a segment, or a
    mapped page.
blocks of a run: block address size requested first last (whole); label (text); pins (flag)
    An allocated block, alive from event `first` up to but not including `last`; whether it pins the
    memory that the first failed request would have needed.
failures of a run: event requested capacity reserved allocated largest_gap pins pinned_bytes
  (whole); place (text)
    The first failed request: what was held, the longest gap between blocks, and the blocks that pin
    the place where the fewest bytes would have had to move.
omitted of a run: blocks largest (whole)
    How many blocks are too small for the address map, and the size of the largest of them.
marks of a workload: event (whole); label (text)
    Step and phase boundaries of the trace.
program of a workload: first last size step site (whole)
    A block of the program, whatever the allocator: alive from event `first` up to but not including
    `last`, its requested bytes, how many steps had begun before it, and its row in `sites`.
sites of a workload: kind line operator module stack (text); stream (whole); derived (flag)
    What blocks hold and where they come from, empty where that is not known. `stack` has the calls
    of the program, outermost first, with semicolons between them; `derived`: of the backward pass
    of that call.
shapes of a workload: module shape (text)
    The shapes of what a module returned when it was first called, by its path.
capacity of a run: bytes (whole)
    The bytes that the device offers.
"""
_HEAD = re.compile(r"(\w+) of a (run|workload): (.*)")


def _listed(text: str) -> Iterator[tuple[str, TableSpec]]:
    """The tables of a text: of a name, the names of columns before the kind that they have."""
    for head, meaning in definitions(text):
        found = _HEAD.fullmatch(head)
        assert found is not None, head
        name, of, listed = found.groups()
        kinds = re.findall(r"([\w ]+) \((\w+)\)", listed)
        columns = {column: kind for names, kind in kinds for column in names.split()}
        yield name, TableSpec(RUN if of == "run" else WORKLOAD, columns, meaning)


TABLES: Mapping[str, TableSpec] = dict(_listed(_TABLES))


def table(name: str, columns: Mapping[str, Any], **key: str) -> pd.DataFrame:
    """One table of the schema from columns of equal length; `key` has the values of its key."""
    index = pd.RangeIndex(len(next(iter(columns.values()))))
    whole: dict[str, Any] = {**key, **columns}
    kinds = TABLES[name].all.items()
    return pd.DataFrame(
        {column: pd.Series(whole[column], index, _DTYPES[kind]) for column, kind in kinds}, index
    )


def none() -> Details:
    """Every table, empty."""
    return {name: _empty(spec) for name, spec in TABLES.items()}


def join(parts: Iterable[Details]) -> Details:
    """The tables of several runs, concatenated; a table missing from a part counts as empty.

    If several parts have a table of the same workload, that of the first one is used.
    """
    every = list(parts)
    joined = {}
    for name, spec in TABLES.items():
        frames = [part[name] for part in every if name in part and not part[name].empty]
        if spec.key == WORKLOAD:
            frames = list(_first_of_each(frames))
        joined[name] = pd.concat(frames, ignore_index=True) if frames else _empty(spec)
    return joined


def _first_of_each(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The rows of each workload in the first frame that has it."""
    seen = set[str]()
    for frame in frames:
        workloads = set(frame["workload"].unique())
        yield frame[~frame["workload"].isin(seen)] if workloads & seen else frame
        seen |= workloads


def of_run(details: Details, name: str, **key: str) -> pd.DataFrame:
    """The rows of one table that have this key."""
    rows = details[name]
    for column, value in key.items():
        if column in TABLES[name].key:
            rows = rows[rows[column] == value]
    return rows


def checked(name: str, frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """The frame with the columns and types of the schema; raises ResultError beginning `where`."""
    kinds = TABLES[name].all
    missing = [column for column in kinds if column not in frame]
    if missing:
        raise ResultError(f"{where}: column {missing[0]!r} is missing")
    try:
        typed = frame[list(kinds)].astype({column: _DTYPES[kind] for column, kind in kinds.items()})
    except (TypeError, ValueError) as error:
        raise ResultError(f"{where}: a column has the wrong type: {error}") from error
    for column, kind in kinds.items():
        if kind == "text" and infer_dtype(typed[column], skipna=False) not in ("string", "empty"):
            raise ResultError(f"{where}: column {column!r} must be text")
    return typed.reset_index(drop=True)


def _empty(spec: TableSpec) -> pd.DataFrame:
    return pd.DataFrame(
        {column: pd.Series(dtype=_DTYPES[kind]) for column, kind in spec.all.items()}
    )
