# SPDX-License-Identifier: Apache-2.0
"""Descriptions in words of the charts that are drawn from the details of a run."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from allocbench.base import units
from allocbench.reports.rows.ranking import Case, ranked
from allocbench.reports.rows.results import SCHEMA

_PERCENTILES = {0.5: "Median", 0.9: "p90", 0.99: "p99", 0.999: "p99.9"}


def latency(percentiles: pd.DataFrame, quantile: float) -> str:
    """One percentile of every allocator with its interval, fastest first."""
    rows = percentiles[percentiles["quantile"] == quantile].sort_values("seconds", kind="stable")
    records = _records(rows)
    sentences = []
    for call in dict.fromkeys(percentiles["call"]):
        parts = [
            f"{row['allocator']} {units.seconds(row['seconds'])}{_interval(row)}"
            for row in records
            if row["call"] == call
        ]
        sentences.append(f"{_PERCENTILES[quantile]} of one {call}: {', '.join(parts)}.")
    return " ".join(sentences)


def scaling(table: pd.DataFrame) -> str:
    """Ratio of the median alloc with the most live blocks to that with the fewest."""
    allocs = _records(table[table["call"] == "alloc"].sort_values("live_from", kind="stable"))
    parts = []
    for name in dict.fromkeys(table["allocator"]):
        mine = [row for row in allocs if row["allocator"] == name]
        if len(mine) > 1 and mine[0]["median"] > 0:
            times = units.times(mine[-1]["median"] / mine[0]["median"])
            parts.append(
                f"{name} {times} from {mine[0]['live_from']:,} to {mine[-1]['live_from']:,} blocks"
            )
    if not parts:
        return "The number of live blocks is of one class only."
    return f"Change of the median alloc with the number of live blocks: {', '.join(parts)}."


def free_blocks(table: pd.DataFrame) -> str:
    """For each allocator, the event with the most free bytes, and their number of blocks."""
    sums = _records(
        table.groupby(["allocator", "event"], as_index=False)[["bytes", "blocks"]].sum()
    )
    parts = []
    for name in dict.fromkeys(table["allocator"]):
        most = max((row for row in sums if row["allocator"] == name), key=lambda row: row["bytes"])
        size, blocks = units.size(most["bytes"]), f"{most['blocks']:,} blocks"
        parts.append(f"{name} {size} in {blocks} at event {most['event']:,}")
    return f"Most free bytes: {', '.join(parts)}."


def lifetimes(table: pd.DataFrame) -> str:
    """The classes with the most blocks and with the most bytes."""
    rows = _records(table)
    common, heavy = (max(rows, key=lambda row: row[name]) for name in ("blocks", "bytes"))
    return (
        f"{table['blocks'].sum():,} blocks of {units.size(int(table['bytes'].sum()))} in total."
        f" The most frequent class is {common['blocks']:,} blocks of {_class(common)}. Most bytes,"
        f" {units.size(heavy['bytes'])}, are in blocks of {_class(heavy)}."
    )


def ranks(table: pd.DataFrame, metric: str) -> str:
    """Mean rank and range of every candidate, best first; `table` has one column per case."""
    spans = zip(table.index, table.mean(axis=1), table.min(axis=1), table.max(axis=1), strict=True)
    order = sorted(spans, key=lambda span: span[1])
    parts = [f"{name} {mean:.1f} ({low:.0f} to {high:.0f})" for name, mean, low, high in order]
    return f"Mean rank by {SCHEMA[metric].heading}, from best to worst: {', '.join(parts)}."


def history(table: pd.DataFrame) -> str:
    """Ratio of the newest value to the oldest, by machine, workload and allocator."""
    parts = []
    key = ["machine", "workload", "allocator", "parameters"]
    for names, rows in table.groupby(key, sort=False):
        values = rows["value"].tolist()
        change = units.times(values[-1] / values[0]) if values[0] else "n/a"
        who = " ".join(str(name) for name in names[1:] if name)
        parts.append(f"{who} {change} over {len(values)} commits")
    return f"Newest value relative to the oldest: {', '.join(parts)}."


def failure(row: Mapping[Any, Any]) -> str:
    """The first failed request in a few sentences, from a row of `failures`."""
    text = (
        f"Event {row['event']:,} requested {units.size(row['requested'])}. The allocator held"
        f" {units.size(row['reserved'])} of {units.size(row['capacity'])}, of which"
        f" {units.size(row['reserved'] - row['allocated'])} were free; the largest gap was"
        f" {units.size(row['largest_gap'])}."
    )
    blocks = f"{row['pins']:,} block{'s' if row['pins'] != 1 else ''}"
    if row["pins"]:
        where = "in the range" if row["place"] == "stretch" else "in the segments to release"
        return (
            f"{text} {blocks} of {units.size(row['pinned_bytes'])} were in the way, {where}"
            " with the fewest allocated bytes."
        )
    if row["largest_gap"] >= row["requested"]:
        return f"{text} A gap was large enough, but the strategy does not use it for this request."
    return f"{text} No block was in the way: free memory was not released or merged."


def verdict_why(case: Case) -> str:
    """The peaks of the smallest and the largest candidate, and what they lose."""
    order = ranked(case.rows, SCHEMA["peak_reserved"])
    if len(order) < 2 or case.max_load is None:
        return ""
    winner, worst = str(order.index[0]), str(order.index[-1])
    return " ".join(
        f"{name} holds {units.size(order[name])} at its peak, {_losses(case, name)}"
        for name in dict.fromkeys((winner, worst))
    )


def _losses(case: Case, name: str) -> str:
    """What a peak contains in addition to the requested bytes."""
    internal = case.number(name, "internal_fragmentation")
    stranded = case.number(name, "stranded")
    bound = case.max_load
    peak = case.number(name, "peak_reserved")
    if internal is None or stranded is None or bound is None or peak is None:
        return f"{units.times(peak / bound)} the max load." if peak and bound else "n/a."
    return (
        f"{units.times(peak / bound)} the max load. Of these, {units.size(stranded)} are not"
        f" allocated; rounding takes {units.percent(internal)} of the allocated bytes."
    )


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _interval(row: Mapping[str, Any]) -> str:
    if pd.isna(row["low"]) or pd.isna(row["high"]):
        return ""
    return f" ({units.seconds(row['low'])} to {units.seconds(row['high'])})"


def _class(row: Mapping[str, Any]) -> str:
    size, span = 2 ** int(row["size_class"]), 2 ** int(row["lifetime_class"])
    return f"{units.size(size)} to {units.size(2 * size)} alive for {span:,} to {2 * span:,} events"
