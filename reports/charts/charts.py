# SPDX-License-Identifier: Apache-2.0
"""The charts of a report: titles, captions, descriptions in words, and the data that is drawn.

`_ROW_CHARTS` lists the charts of result rows, `CASE_CHARTS` those of one case that need details.
Charts without data are left out; `absent` says which are missing, and how to get them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from allocbench.base import units
from allocbench.base.extra import needs_extra
from allocbench.reports.advice import findings
from allocbench.reports.rows.details import Details, of_run
from allocbench.reports.rows.ranking import Case, cases, ranked
from allocbench.reports.rows.results import COLUMNS, SCHEMA

with needs_extra("report"):
    from matplotlib.figure import Figure

    from allocbench.reports.charts import figures, theme, workload_figures


@dataclass(frozen=True)
class Chart:
    """One chart: `draw` makes its figure and `data` holds what it shows as a tidy table.

    `table` names the table of the details that holds `data`, in the rows whose columns equal those
    in `of`; it is None for a chart with data of its own. A page with scripts draws a chart that is
    `in_explorer` itself.
    """

    key: str
    title: str
    caption: str
    words: str
    data: pd.DataFrame
    draw: Callable[[], Figure]
    table: str | None = None
    of: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False


RANKED = ("peak_reserved", "seconds_per_event_steady")
HEAT = ("overhead", "min_capacity", "seconds_per_event_steady", "alloc_p99_seconds")
_IDENTITY = ("workload", "device", "allocator")


def _each(cases: Sequence[Case], metrics: Sequence[str]) -> str:
    """The metrics in words, each with its name if there are several."""
    words = [findings.describe(cases, metric) for metric in metrics]
    if len(metrics) == 1:
        return words[0]
    names = [metric.replace("_", " ").capitalize() for metric in metrics]
    return " ".join(f"{name}: {text}" for name, text in zip(names, words, strict=True))


@dataclass(frozen=True)
class _RowChart:
    """A chart of result rows, drawn if some row has all of `metrics[:need]`.

    words: describes the chart in text; the default describes each metric.
    """

    key: str
    title: str
    caption: str
    draw: Callable[[pd.DataFrame], Figure]
    metrics: tuple[str, ...]
    need: int = 1
    words: Callable[[Sequence[Case], Sequence[str]], str] = _each


_TRADE = _RowChart(
    "trade",
    "Latency against peak memory",
    "Lower left is better: less memory and less host time per alloc. The line connects the"
    " median and the 99th percentile. Device time is not included.",
    figures.latency_against_memory,
    ("peak_reserved", *figures.LATENCY),
    need=3,
    words=lambda found, metrics: findings.describe_trade(found, metrics[2]),
)
_ROW_CHARTS = (
    _RowChart(
        "capacity",
        "Min capacity",
        "The smallest device on which each workload completes with no failed request. No allocator"
        " needs less than the max load.",
        figures.min_capacity,
        ("min_capacity",),
    ),
    _RowChart(
        "overhead",
        "Overhead",
        "Peak reserved bytes divided by the max load; 1 is the lower bound. The axis fits the"
        " candidates, so the bar of a floor can be cut off; its label still gives the full number.",
        figures.overhead,
        ("overhead",),
    ),
    _RowChart(
        "fragmentation",
        "Fragmentation",
        "Fragmentation ratio: the share of the peak reserved bytes that was never allocated."
        " Internal: the share of the allocated bytes that rounding takes when reserved bytes first"
        " peak.",
        figures.fragmentation,
        figures.FRAGMENTATION,
    ),
    _RowChart(
        "stable",
        "Stable addresses",
        "Share of the blocks, and of the bytes, that are at the same address as in the step before,"
        " from step 3 on. A captured graph must be captured again when an input has moved.",
        figures.stable_addresses,
        figures.STABLE_ADDRESSES,
    ),
    _RowChart(
        "host",
        "Host time per event",
        "The minimum of the passes, with a line to their median. Steady: the same allocator"
        " replays the trace again. Cold: a new allocator each pass.",
        figures.host_time,
        figures.HOST_TIME,
    ),
    _RowChart(
        "device",
        "Device time",
        "Time of the device calls, on a logarithmic axis. On a simulated device, it is an estimate"
        " by a model. It is never part of host time.",
        figures.device_time,
        ("device_seconds",),
    ),
)


def trade(table: pd.DataFrame, case: Case, key: str) -> Chart | None:
    """Latency against memory for one case; None if no row has both."""
    mine = _rows_of(table, case)
    return _chart(mine, _TRADE, f"{key}-") if _drawable(mine, _TRADE) else None


def of_rows(table: pd.DataFrame) -> list[Chart]:
    """The charts of single metrics over every case."""
    return [_chart(table, kind) for kind in _ROW_CHARTS if _drawable(table, kind)]


def across(table: pd.DataFrame) -> list[Chart]:
    """Heat maps over the cases and the stability of ranks; empty for fewer than two cases."""
    all_cases = cases(table)
    if len(all_cases) < 2:
        return []
    looks = theme.looks(all_cases)
    schema = {column.name: column for column in COLUMNS}
    charts = [
        Chart(
            f"heat-{metric}",
            f"{schema[metric].heading.capitalize()} on every workload",
            "Color: ratio to the best allocator of the workload; darkest is best. Cells without"
            " color were not measured, or requests failed.",
            findings.describe(all_cases, metric),
            table[[*_IDENTITY, metric]],
            partial(workload_figures.heat_map, all_cases, metric),
        )
        for metric in HEAT
        if table[metric].notna().any()
    ]
    ranked = [metric for metric in RANKED if not workload_figures.ranks(all_cases, metric).empty]
    if ranked:
        data = [
            workload_figures.ranks(all_cases, metric)
            .rename_axis("allocator")
            .reset_index()
            .melt("allocator", var_name="case", value_name="rank")
            .assign(metric=metric)
            for metric in ranked
        ]
        charts.append(
            Chart(
                "ranks",
                "Stability of the ranks",
                "The mark is the mean rank over the workloads. The bar goes from the best to the"
                " worst rank, with a tick for each rank. A short bar means that the choice hardly"
                " depends on the workload.",
                " ".join(
                    ranks(workload_figures.ranks(all_cases, metric), metric) for metric in ranked
                ),
                pd.concat(data, ignore_index=True),
                partial(workload_figures.rank_stability, all_cases, ranked, looks),
            )
        )
    return charts


def of_history(table: pd.DataFrame, looks: Mapping[str, theme.Look]) -> Iterator[Chart]:
    """A chart for each benchmark of `asv.history` that has values of allocators."""
    all_looks = theme.looks_too([str(name) for name in table["allocator"].unique()], looks)
    named = table[table["allocator"] != ""]
    for n, (name, rows) in enumerate(named.groupby("benchmark", sort=False), 1):
        yield Chart(
            f"history-{n}",
            str(name),
            "Commits in order of their dates, evenly spaced, newest on the right. Bars are"
            " the 99 % confidence intervals of asv, if available.",
            history(rows),
            rows.assign(date=rows["date"].dt.strftime("%Y-%m-%d %H:%M")),
            partial(workload_figures.history, rows, all_looks),
        )


def _drawable(table: pd.DataFrame, kind: _RowChart) -> bool:
    return bool(table[list(kind.metrics[: kind.need])].notna().all(axis=1).any())


def _chart(table: pd.DataFrame, kind: _RowChart, prefix: str = "") -> Chart:
    words = kind.words(cases(table), kind.metrics)
    data = table[[*_IDENTITY, *kind.metrics]]
    key, draw = f"{prefix}{kind.key}", partial(kind.draw, table)
    return Chart(key, kind.title, kind.caption, words, data, draw)


def _rows_of(table: pd.DataFrame, case: Case) -> pd.DataFrame:
    return table[(table["workload"] == case.workload) & (table["device"] == case.device)]


_FROM = "compare --html, or with report after compare --results"


@dataclass(frozen=True)
class Shown:
    """The data of a chart: one case, its tables of details, and the looks of allocators."""

    case: Case
    details: Details
    looks: Mapping[str, "theme.Look"]

    def table(self, name: str) -> pd.DataFrame:
        """The rows of a table of the details that belong to the case."""
        return of_run(self.details, name, **self.run)

    @property
    def run(self) -> dict[str, str]:
        """The columns that identify the rows of this case."""
        return {"workload": self.case.workload, "device": self.case.device}


@dataclass(frozen=True)
class CaseChart:
    """A chart of one table of the details.

    words: describes the chart in text. missed: its name in the note that it is missing, or None for
    no note. in_explorer: see `Chart`.
    """

    key: str
    table: str
    title: str
    caption: str
    words: Callable[[Shown], str]
    draw: Callable[[Shown], "Figure"]
    missed: str | None = None
    in_explorer: bool = False


CASE_CHARTS = (
    CaseChart(
        "memory",
        "memory",
        "Memory over time",
        "Light area: reserved bytes. Dark area: allocated bytes. The difference is memory that the"
        " allocator holds but no block uses. All panels share one scale.",
        lambda shown: findings.describe_memory(shown.case),
        lambda shown: figures.memory_over_time(shown.table("memory"), shown.case, shown.looks),
        missed="memory over time",
        in_explorer=True,
    ),
    CaseChart(
        "latency",
        "latency",
        "Latency of single calls",
        "The fraction of calls that took at most this long; further left is faster. The axis ends"
        " just after the slowest 99.9th percentile. Host time of single calls in a later replay"
        " through the same allocator, with the cost of the timer subtracted.",
        lambda shown: latency(shown.table("percentiles"), 0.5),
        lambda shown: workload_figures.latency_distribution(shown.table("latency"), shown.looks),
        missed="the distribution of latencies",
    ),
    CaseChart(
        "percentiles",
        "percentiles",
        "Percentiles of single calls",
        "The mark is the median over the passes; the bar spans the lowest to the highest. The"
        " allocators take turns, pass by pass.",
        lambda shown: latency(shown.table("percentiles"), 0.99),
        lambda shown: workload_figures.percentiles(shown.table("percentiles"), shown.looks),
    ),
    CaseChart(
        "scaling",
        "scaling",
        "Latency against live blocks",
        "Calls grouped by the number of live blocks. A rising line means that the allocator"
        " searches longer when more blocks are alive.",
        lambda shown: scaling(shown.table("scaling")),
        lambda shown: workload_figures.scaling(shown.table("scaling"), shown.looks),
    ),
    CaseChart(
        "free",
        "free_blocks",
        "Free blocks by size",
        "Free bytes in blocks of each size, over the events. Many small blocks at the bottom are"
        " memory that large requests cannot use.",
        lambda shown: free_blocks(shown.table("free_blocks")),
        lambda shown: workload_figures.free_blocks(
            shown.table("free_blocks"), shown.case.allocators, shown.looks
        ),
        missed="free blocks by size",
        in_explorer=True,
    ),
    CaseChart(
        "lifetimes",
        "lifetimes",
        "Sizes and lifetimes of the blocks",
        "The workload itself, which is the same for every allocator: the number of blocks and of"
        " bytes for each size and lifetime.",
        lambda shown: lifetimes(shown.table("lifetimes")),
        lambda shown: workload_figures.lifetimes(shown.table("lifetimes")),
        missed="sizes and lifetimes",
    ),
)


def of_case(
    details: Details, case: Case, key: str, looks: Mapping[str, "theme.Look"]
) -> Iterator[Chart]:
    """The charts of one case whose tables have rows; their keys begin with `key`."""
    shown = Shown(case, details, looks)
    for kind in CASE_CHARTS:
        data = shown.table(kind.table)
        if not data.empty:
            yield Chart(
                f"{key}-{kind.key}",
                kind.title,
                kind.caption,
                kind.words(shown),
                data,
                partial(kind.draw, shown),
                kind.table,
                shown.run,
                kind.in_explorer,
            )


def absent(details: Details, cases: Sequence[Case]) -> list[str]:
    """One sentence for each case with missing charts: which, and why."""
    wanted = [(kind.table, kind.missed) for kind in CASE_CHARTS if kind.missed is not None]
    wanted.insert(1, ("blocks", "the address map"))
    remarks = []
    for case in cases:
        shown = Shown(case, details, {})
        missing = [words for table, words in wanted if shown.table(table).empty]
        if missing == ["the distribution of latencies"]:
            remarks.append(f"{case.title}: no {missing[0]}: no host time was measured.")
        elif missing:
            remarks.append(
                f"{case.title}: no {', '.join(missing)}: the results contain only rows (these"
                f" charts come with {_FROM})."
            )
    return remarks


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
    if not bound or peak is None:
        return "n/a."
    if internal is None or stranded is None:
        return f"{units.times(peak / bound)} the max load."
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
