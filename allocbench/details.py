# SPDX-License-Identifier: Apache-2.0
"""What a run leaves for charts: the tables of `reports.details`, made small enough to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.address_map import AddressMap, address_map
from allocbench.allocators import ReplayResult
from allocbench.base.text import one_line
from allocbench.reports.details import RUN, Details, table
from allocbench.workloads import ALLOC, FREE, MARK, Trace, lifetimes

INTERVALS = 500
"""Of each the extremes are kept, which is as much as a chart is wide."""
_MOST_MARKS = 300
_MOST_INSTANTS, _FEWEST_INSTANTS = 200, 8
_MOST_BLOCKS = 8000  # in one address map
_BLOCKS_IN_ALL = 100_000  # in those of one workload
_CONFIDENCE = 1.96  # standard deviations to either side: 95 %
_PERCENTILES = (0.5, 0.9, 0.99, 0.999)
_FEWEST_CALLS = 100  # for a 99th percentile
_QUANTILES = np.unique(
    np.concatenate([np.linspace(0, 1, 101), 1 - np.logspace(-2, -6, 41), np.logspace(-3, -2, 8)])
)

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A trace as the details of its runs need it; n blocks, one for each alloc, in order.

    first, last, size, live: int64 (n,), the event of the alloc, that of the free or the length of
        the trace, requested bytes, and how many blocks are alive before the alloc.
    live_at_free: int64, one element for each free.
    instants: the events at which address maps are drawn.
    most_blocks: how many blocks one of them may have.
    """

    name: str
    trace: Trace
    first: Ints
    last: Ints
    size: Ints
    live: Ints
    live_at_free: Ints
    instants: Ints
    most_blocks: int

    @classmethod
    def of(cls, name: str, trace: Trace, runs: int = 1) -> Prepared:
        """The workload of a valid trace that goes through so many allocators."""
        most = min(_MOST_BLOCKS, _BLOCKS_IN_ALL // runs)
        spans = lifetimes(trace)
        first, last = spans.first.astype(np.int64), spans.last.astype(np.int64)
        change = np.zeros(len(trace), np.int64)
        change[trace.op == ALLOC] = 1
        change[trace.op == FREE] = -1
        before = np.cumsum(change) - change
        return cls(
            name,
            trace,
            first,
            last,
            spans.size.astype(np.int64),
            before[trace.op == ALLOC],
            before[trace.op == FREE],
            _instants(len(trace), first, last, most),
            most,
        )

    def details(self) -> Details:
        """The tables that are the same for every allocator."""
        return {
            "marks": table("marks", self._marks(), workload=self.name),
            "lifetimes": table("lifetimes", self._lifetimes(), workload=self.name),
        }

    def label(self, blocks: Ints) -> list[str]:
        """The operator or phase that asked for each of some blocks; empty where unknown."""
        if self.trace.label is None:
            return [""] * len(blocks)
        labels = [one_line(label) for label in self.trace.labels]
        return [labels[n] for n in self.trace.label[self.first[blocks]].tolist()]

    def _marks(self) -> dict[str, Any]:
        """Steps first: where there are too many marks, every so many of the steps alone."""
        events = np.flatnonzero(self.trace.op == MARK)
        if len(events) > _MOST_MARKS:
            steps = events[self.trace.block[events] == self.trace.step_label]
            events = steps if len(steps) else events
            events = events[:: -(-len(events) // _MOST_MARKS)]
        labels = [one_line(self.trace.labels[n]) for n in self.trace.block[events].tolist()]
        return {"event": events, "label": labels}

    def _lifetimes(self) -> dict[str, Any]:
        def powers(values: Ints) -> Ints:
            return np.floor(np.log2(np.maximum(values, 1))).astype(np.int64)

        both = powers(self.size) * 64 + powers(self.last - self.first)
        classes, blocks = np.unique(both, return_counts=True)
        bytes_ = np.bincount(np.searchsorted(classes, both), weights=self.size)
        return {
            "size_class": classes // 64,
            "lifetime_class": classes % 64,
            "blocks": blocks,
            "bytes": bytes_.astype(np.int64),
        }


def of_replay(
    workload: Prepared, result: ReplayResult, capacity: int, keeps_free: bool
) -> dict[str, pd.DataFrame]:
    """The tables of a replay made with `detail`; its key is given by `with_key`.

    capacity: bytes of the device. keeps_free: whether external fragmentation applies.
    """
    assert result.detail is not None
    placed, calls = result.detail["placements"], result.detail["device_calls"]
    made = address_map(workload, placed, calls, capacity, workload.most_blocks)
    return {
        "memory": _frame("memory", result.detail["envelope"]),
        "moments": _frame("moments", _moments(result, keeps_free)),
        "free_blocks": _frame("free_blocks", result.detail["free_blocks"]),
        **{name: _frame(name, columns) for name, columns in _map_tables(workload, made).items()},
    }


def of_latency(
    workload: Prepared, alloc: NDArray[np.float32], free: NDArray[np.float32]
) -> dict[str, pd.DataFrame]:
    """The tables of the host seconds of every alloc and every free, in order of the trace."""
    calls = {"alloc": (alloc, workload.live), "free": (free, workload.live_at_free)}
    parts: dict[str, list[Any]] = {"latency": [], "percentiles": [], "scaling": []}
    for call, (seconds, live) in calls.items():
        if len(seconds):
            parts["latency"] += _sketch(call, seconds)
            parts["percentiles"] += _percentiles(call, np.sort(seconds))
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


def _instants(events: int, first: Ints, last: Ints, most: int) -> Ints:
    """Events at even distances, as many as there may be without too many blocks to draw."""
    count = min(_MOST_INSTANTS, max(1, events))
    while True:
        found = np.unique(np.linspace(0, max(0, events - 1), count).astype(np.int64))
        alive = np.searchsorted(found, first) < np.searchsorted(found, last)
        # A tenth is left for the instants that a run adds.
        if count <= _FEWEST_INSTANTS or np.count_nonzero(alive) <= most * 9 // 10:
            return found
        count = max(_FEWEST_INSTANTS, count * 3 // 4)


def _moments(result: ReplayResult, keeps_free: bool) -> dict[str, Any]:
    """Fragmentation at the timeline's events, and what the device had cost by then."""
    assert result.detail is not None
    line = {name: column.astype(np.int64) for name, column in result.timeline.items()}
    calls = result.detail["device_calls"]
    done = np.searchsorted(calls["event"], line["event"], side="right")
    seconds = np.append(0.0, np.cumsum(calls["seconds"]))
    thin = slice(None, None, max(1, len(done) // INTERVALS))
    free = line["reserved"] - line["allocated"]
    nothing = np.full(len(done), np.nan)
    external = _ratio(free - line["largest_free"], free)
    columns = {
        "event": line["event"],
        "internal_fragmentation": _ratio(line["allocated"] - line["requested"], line["allocated"]),
        "external_fragmentation": external if keeps_free else nothing,
        "device_calls": done,
        "device_seconds": seconds[done],
    }
    return {name: column[thin] for name, column in columns.items()}


def _ratio(part: Ints, whole: Ints) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _map_tables(workload: Prepared, made: AddressMap) -> dict[str, Any]:
    chosen = made.blocks
    tables: dict[str, Any] = {
        "instants": {"event": made.instants},
        "ranges": made.ranges,
        "blocks": {
            "block": chosen,
            "address": made.address,
            "size": made.size,
            "requested": workload.size[chosen],
            "first": workload.first[chosen],
            "last": workload.last[chosen],
            "label": workload.label(chosen),
            "pins": np.isin(chosen, made.pins),
        },
    }
    if made.failure:
        tables["failures"] = {name: [value] for name, value in made.failure.items()}
    if made.omitted:
        tables["omitted"] = {"blocks": [made.omitted], "largest": [made.largest_omitted]}
    return tables


def _sketch(call: str, seconds: NDArray[np.float32]) -> list[tuple[str, float, float]]:
    """Quantiles as fine as the number of calls bears them out."""
    finest = 1 / len(seconds)
    kept = [q for q in _QUANTILES.tolist() if q in (0, 1) or finest <= min(q, 1 - q)]
    found = np.quantile(seconds, kept)
    return [(call, q, float(value)) for q, value in zip(kept, found, strict=True)]


def _percentiles(call: str, ordered: NDArray[np.float32]) -> list[tuple[Any, ...]]:
    """Percentiles with the order statistics that bound them with 95 % confidence.

    How many of n calls are below the true percentile q is binomial, about normal with mean n q;
    the calls are taken as independent (Conover, Practical Nonparametric Statistics, 3.2).
    """
    rows: list[tuple[Any, ...]] = []
    count = len(ordered)
    for q in _PERCENTILES:
        spread = _CONFIDENCE * np.sqrt(count * q * (1 - q))
        low, high = int(np.floor(count * q - spread)), int(np.ceil(count * q + spread))
        bounds = (
            float(ordered[low]) if low >= 0 else np.nan,
            float(ordered[high]) if high < count else np.nan,
        )
        rows.append((call, q, float(np.quantile(ordered, q)), *bounds, count))
    return rows


def _scaling(call: str, seconds: NDArray[np.float32], live: Ints) -> list[tuple[Any, ...]]:
    """Calls by how many blocks were alive: two classes for each power of two."""
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
