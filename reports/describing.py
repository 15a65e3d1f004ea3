# SPDX-License-Identifier: Apache-2.0
"""What the details of a run say, in words: the text beside each chart that is drawn from them."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from allocbench.reports import units
from allocbench.reports.ranking import Case, ranked
from allocbench.reports.results import SCHEMA

_PERCENTILES = {0.5: "Median", 0.9: "p90", 0.99: "p99", 0.999: "p99.9"}


def latency(percentiles: pd.DataFrame, quantile: float) -> str:
    """One percentile of every allocator, quickest first, with its interval."""
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
    """How much slower the median alloc is with most than with fewest live blocks."""
    allocs = _records(table[table["call"] == "alloc"].sort_values("live_from", kind="stable"))
    parts = []
    for name in dict.fromkeys(table["allocator"]):
        mine = [row for row in allocs if row["allocator"] == name]
        if len(mine) > 1 and mine[0]["median"] > 0:
            times = units.times(mine[-1]["median"] / mine[0]["median"])
            parts.append(
                f"{name} {times} from {mine[0]['live_from']:,} to {mine[-1]['live_from']:,}"
            )
    return f"Median alloc with the number of live blocks: {', '.join(parts) or 'one class only'}."


def free_blocks(table: pd.DataFrame) -> str:
    """When and how many free bytes lay in how many blocks at most, by allocator."""
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
    """The commonest and the heaviest class of a workload's blocks."""
    rows = _records(table)
    common, heavy = (max(rows, key=lambda row: row[name]) for name in ("blocks", "bytes"))
    return (
        f"{table['blocks'].sum():,} blocks of {units.size(int(table['bytes'].sum()))} in all."
        f" Commonest are {common['blocks']:,} blocks of {_class(common)}; most bytes,"
        f" {units.size(heavy['bytes'])}, are in blocks of {_class(heavy)}."
    )


def ranks(table: pd.DataFrame, metric: str) -> str:
    """Mean rank and its span for every candidate, best first; `table` has a column per case."""
    spans = zip(table.index, table.mean(axis=1), table.min(axis=1), table.max(axis=1), strict=True)
    order = sorted(spans, key=lambda span: span[1])
    parts = [f"{name} {mean:.1f} ({low:.0f} to {high:.0f})" for name, mean, low, high in order]
    return f"Mean rank by {SCHEMA[metric].heading}, from best to worst: {', '.join(parts)}."


def history(table: pd.DataFrame) -> str:
    """How the newest value of each allocator stands to the oldest, by machine and workload."""
    parts = []
    key = ["machine", "workload", "allocator", "parameters"]
    for names, rows in table.groupby(key, sort=False):
        values = rows["value"].tolist()
        change = units.times(values[-1] / values[0]) if values[0] else "n/a"
        who = " ".join(str(name) for name in names[1:] if name)
        parts.append(f"{who} {change} over {len(values)} commits")
    return f"Newest value against the oldest: {', '.join(parts)}."


def failure(row: Mapping[Any, Any]) -> str:
    """What happened at the first failed request, in a sentence or two; a row of `failures`."""
    text = (
        f"Event {row['event']:,} asked for {units.size(row['requested'])}; held were"
        f" {units.size(row['reserved'])} of {units.size(row['capacity'])}, of them"
        f" {units.size(row['reserved'] - row['allocated'])} free, the longest gap"
        f" {units.size(row['largest_gap'])}."
    )
    blocks = f"{row['pins']:,} block{'s' if row['pins'] != 1 else ''}"
    if row["pins"]:
        where = "in the stretch" if row["place"] == "stretch" else "in segments to give back"
        return (
            f"{text} {blocks} of {units.size(row['pinned_bytes'])} pinned it: {where} where"
            " fewest bytes stood in the way."
        )
    if row["largest_gap"] >= row["requested"]:
        return f"{text} A gap was long enough: the strategy does not use it for this request."
    return f"{text} No block stood in the way: wholly free memory was not given back or joined."


def verdict_why(case: Case) -> str:
    """Why the smallest candidate is the smallest: what the runner-up loses to rounding and gaps."""
    order = ranked(case.rows, SCHEMA["peak_reserved"])
    if len(order) < 2 or case.max_load is None:
        return ""
    winner, worst = str(order.index[0]), str(order.index[-1])
    return " ".join(
        f"{name} holds {units.size(order[name])} at its peak, {_losses(case, name)}"
        for name in dict.fromkeys((winner, worst))
    )


def _losses(case: Case, name: str) -> str:
    """What a peak consists of beyond the bytes asked for."""
    internal = case.number(name, "internal_fragmentation")
    stranded = case.number(name, "stranded")
    bound = case.max_load
    peak = case.number(name, "peak_reserved")
    if internal is None or stranded is None or bound is None or peak is None:
        return f"{units.times(peak / bound)} the max load." if peak and bound else "n/a."
    return (
        f"{units.times(peak / bound)} the max load: {units.size(stranded)} of it allocated to"
        f" nothing, {units.percent(internal)} of the allocated bytes lost to rounding."
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
