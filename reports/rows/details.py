# SPDX-License-Identifier: Apache-2.0
"""Details: the tidy tables of charts that need more than a flat result row.

Each table is a frame keyed by `RUN` (a result row) or by `WORKLOAD`. `TABLES` is the only place
that names their columns. A report can also be made from rows alone; it then lacks the charts whose
tables are empty, and says so.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

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


def _columns(**names: str) -> dict[str, Kind]:
    """Columns with their kinds; names of one kind are separated by spaces."""
    return {name: kind for kind, listed in names.items() for name in listed.split()}


TABLES: Mapping[str, TableSpec] = {
    "memory": TableSpec(
        RUN,
        _columns(whole="event requested allocated reserved"),
        "Bytes after an event. Each of a few hundred intervals keeps the events with the lowest"
        " and the highest value of each column, so that no peak is lost.",
    ),
    "moments": TableSpec(
        RUN,
        _columns(whole="event", number="internal_fragmentation external_fragmentation")
        | _columns(whole="device_calls", number="device_seconds"),
        "The state after evenly spaced events; device calls and seconds are totals since the"
        " start.",
    ),
    "free_blocks": TableSpec(
        RUN,
        _columns(whole="event size_class blocks bytes"),
        "The free blocks after an event, by size: from 2^size_class bytes up to twice that.",
    ),
    "latency": TableSpec(
        RUN,
        _columns(text="call", number="quantile seconds"),
        "Quantiles of the host seconds of single calls, dense at the upper end.",
    ),
    "scaling": TableSpec(
        RUN,
        _columns(text="call", whole="live_from live_to", number="median p99")
        | _columns(whole="count"),
        "Host seconds of the calls made while `live_from` up to `live_to` blocks were alive.",
    ),
    "instants": TableSpec(
        RUN, _columns(whole="event"), "The events after which `ranges` and `blocks` are complete."
    ),
    "ranges": TableSpec(
        RUN,
        _columns(whole="address size first last", flag="mapped"),
        "Memory held from the device, from event `first` up to but not including `last`: a segment,"
        " or a mapped page.",
    ),
    "blocks": TableSpec(
        RUN,
        _columns(whole="block address size requested first last", text="label", flag="pins"),
        "An allocated block, alive from event `first` up to but not including `last`; whether it"
        " pins the memory that the first failed request would have needed.",
    ),
    "failures": TableSpec(
        RUN,
        _columns(
            whole="event requested capacity reserved allocated largest_gap pins pinned_bytes",
            text="place",
        ),
        "The first failed request: what was held, the longest gap between blocks, and the blocks"
        " that pin the place where the fewest bytes would have had to move.",
    ),
    "omitted": TableSpec(
        RUN,
        _columns(whole="blocks largest"),
        "How many blocks are too small for the address map, and the size of the largest of them.",
    ),
    "marks": TableSpec(
        WORKLOAD, _columns(whole="event", text="label"), "Step and phase boundaries of the trace."
    ),
    "program": TableSpec(
        WORKLOAD,
        _columns(whole="first last size step site"),
        "A block of the program, whatever the allocator: alive from event `first` up to but not"
        " including `last`, its requested bytes, how many steps had begun before it, and its row"
        " in `sites`.",
    ),
    "sites": TableSpec(
        WORKLOAD,
        _columns(text="kind line operator module stack", whole="stream", flag="derived"),
        "What blocks hold and where they come from, empty where that is not known. `stack` has the"
        " calls of the program, outermost first, with semicolons between them; `derived`: of the"
        " backward pass of that call.",
    ),
    "shapes": TableSpec(
        WORKLOAD,
        _columns(text="module shape"),
        "The shapes of what a module returned when it was first called, by its path.",
    ),
    "capacity": TableSpec(RUN, _columns(whole="bytes"), "The bytes that the device offers."),
}


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
