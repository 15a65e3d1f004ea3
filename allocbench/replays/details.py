# SPDX-License-Identifier: Apache-2.0
"""The data of a run for charts: the tables of `reports.details`, reduced in size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.allocators import ReplayResult
from allocbench.replays.address_map import AddressMap, address_map
from allocbench.replays.timing import PERCENTILES
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.reports.rows.details import RUN, Details, table
from allocbench.reports.rows.results import SCHEMA

INTERVALS = 500
"""The minimum and maximum of each interval are kept; a chart has about as many pixels."""
_FEWEST_CALLS = 100  # for a 99th percentile
_QUANTILES = np.unique(
    np.concatenate([np.linspace(0, 1, 101), 1 - np.logspace(-2, -6, 41), np.logspace(-3, -2, 8)])
)

Ints = NDArray[np.int64]


def of_replay(
    workload: TraceBlocks, result: ReplayResult, capacity: int, keeps_free: bool
) -> dict[str, pd.DataFrame]:
    """The tables of a replay made with `detail`; its key is given by `with_key`.

    capacity: bytes of the device. keeps_free: whether external fragmentation applies.
    """
    assert result.detail is not None
    placements, calls = result.detail["placements"], result.detail["device_calls"]
    drawn = address_map(workload, placements, calls, capacity, workload.most_blocks)
    return {
        "capacity": _frame("capacity", {"bytes": [capacity]}),
        "memory": _frame("memory", result.detail["envelope"]),
        "moments": _frame("moments", _moments(result, keeps_free)),
        "free_blocks": _frame("free_blocks", result.detail["free_blocks"]),
        **{name: _frame(name, columns) for name, columns in _map_tables(workload, drawn).items()},
    }


def of_latency(
    workload: TraceBlocks,
    row: Mapping[str, Any],
    alloc: NDArray[np.float32],
    free: NDArray[np.float32],
) -> dict[str, pd.DataFrame]:
    """The tables of the host seconds of single calls.

    row: the result row, with the statistics of all passes. alloc, free: the host seconds of every
    call of one pass, in order of the trace.
    """
    calls = {"alloc": (alloc, workload.live), "free": (free, workload.live_at_free)}
    parts: dict[str, list[Any]] = {"latency": [], "percentiles": [], "scaling": []}
    for call, (seconds, live) in calls.items():
        if len(seconds):
            parts["latency"] += _sketch(call, seconds)
            parts["percentiles"] += _percentiles(call, row, len(seconds))
            parts["scaling"] += _scaling(call, seconds, live)
    names = {
        "latency": ("call", "quantile", "seconds"),
        "percentiles": ("call", "quantile", "seconds", "low", "high", "count"),
        "scaling": ("call", "live_from", "live_to", "median", "p99", "count"),
    }
    return {
        name: _frame(name, {column: [row[n] for row in rows] for n, column in enumerate(columns)})
        for name, columns in names.items()
        for rows in [parts[name]]
    }


def with_key(details: Details, row: Mapping[str, Any]) -> Details:
    """The tables of one run with the key of its row."""
    key = {name: row[name] for name in RUN}
    return {name: frame.assign(**key) for name, frame in details.items()}


def _frame(name: str, columns: Any) -> pd.DataFrame:
    """A table whose key is not yet known."""
    return table(name, columns, workload="", device="", allocator="")


def _moments(result: ReplayResult, keeps_free: bool) -> dict[str, Any]:
    """Fragmentation at the timeline's events, and the cost of device calls up to them."""
    assert result.detail is not None
    line = {name: column.astype(np.int64) for name, column in result.timeline.items()}
    calls = result.detail["device_calls"]
    calls_before = np.searchsorted(calls["event"], line["event"], side="right")
    seconds = np.append(0.0, np.cumsum(calls["seconds"]))
    thin = slice(None, None, max(1, len(calls_before) // INTERVALS))
    free = line["reserved"] - line["allocated"]
    nothing = np.full(len(calls_before), np.nan)
    external = _ratio(free - line["largest_free"], free)
    columns = {
        "event": line["event"],
        "internal_fragmentation": _ratio(line["allocated"] - line["requested"], line["allocated"]),
        "external_fragmentation": external if keeps_free else nothing,
        "device_calls": calls_before,
        "device_seconds": seconds[calls_before],
    }
    return {name: column[thin] for name, column in columns.items()}


def _ratio(part: Ints, whole: Ints) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _map_tables(workload: TraceBlocks, drawn: AddressMap) -> dict[str, Any]:
    chosen = drawn.blocks
    tables: dict[str, Any] = {
        "instants": {"event": drawn.instants},
        "ranges": drawn.ranges,
        "blocks": {
            "block": chosen,
            "address": drawn.address,
            "size": drawn.size,
            "requested": workload.size[chosen],
            "first": workload.first[chosen],
            "last": workload.last[chosen],
            "label": workload.label(chosen),
            "pins": np.isin(chosen, drawn.pins),
        },
    }
    if drawn.failure:
        tables["failures"] = {name: [value] for name, value in drawn.failure.items()}
    if drawn.omitted:
        tables["omitted"] = {"blocks": [drawn.omitted], "largest": [drawn.largest_omitted]}
    return tables


def _sketch(call: str, seconds: NDArray[np.float32]) -> list[tuple[str, float, float]]:
    """Quantiles, as fine as the number of calls supports."""
    finest = 1 / len(seconds)
    kept = [q for q in _QUANTILES.tolist() if q in (0, 1) or finest <= min(q, 1 - q)]
    values = np.quantile(seconds, kept)
    return [(call, q, float(value)) for q, value in zip(kept, values, strict=True)]


def _percentiles(call: str, row: Mapping[str, Any], count: int) -> list[tuple[Any, ...]]:
    """The percentiles of a row with their intervals, which need several passes."""
    columns = [
        (round(q / 100, 4), SCHEMA[f"{call}_{name}_seconds"]) for name, q in PERCENTILES.items()
    ]
    several = row["passes"] > 1
    return [
        (
            call,
            q,
            row[column.name],
            row[column.low] if several else np.nan,
            row[column.high] if several else np.nan,
            count,
        )
        for q, column in columns
    ]


def _scaling(call: str, seconds: NDArray[np.float32], live: Ints) -> list[tuple[Any, ...]]:
    """Calls grouped by the number of live blocks: two classes for each power of two."""
    rows: list[tuple[Any, ...]] = []
    edges = np.unique(np.round(np.sqrt(2) ** np.arange(0, 2 * 40)).astype(np.int64))
    edges = np.append(0, edges)
    classes = np.searchsorted(edges, live, side="right") - 1
    for n in np.unique(classes).tolist():
        mine = seconds[classes == n]
        if len(mine) < _FEWEST_CALLS // 4:
            continue
        p99 = float(np.quantile(mine, 0.99)) if len(mine) >= _FEWEST_CALLS else np.nan
        span = int(edges[n]), int(edges[n + 1])
        rows.append((call, *span, float(np.median(mine)), p99, len(mine)))
    return rows
