# SPDX-License-Identifier: Apache-2.0
"""Which charts a report has: the figure, its data, how to read it, and what it shows in words.

A chart whose data is missing is not made; `absent` tells which, and what would give it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from allocbench.reports import describing, findings
from allocbench.reports.details import Details, of_run
from allocbench.reports.extra import needs_extra
from allocbench.reports.ranking import Case, cases
from allocbench.reports.results import COLUMNS

with needs_extra("report"):
    from matplotlib.figure import Figure

    from allocbench.reports import call_figures, figures, history_figures, theme, workload_figures

RANKED = ("peak_reserved", "seconds_per_event_steady")
HEAT = ("overhead", "min_capacity", "seconds_per_event_steady", "alloc_p99_seconds")
_IDENTITY = ("workload", "device", "allocator")
_FROM = "compare --html, or report of what compare --results wrote"


@dataclass(frozen=True)
class Chart:
    """One chart: `draw` makes its figure, `data` is what it shows as a tidy table.

    `table` names the table of the details that `data` is of, its rows where the columns are as in
    `of`; it is None where the data is the chart's own.
    """

    key: str
    title: str
    caption: str
    words: str
    data: pd.DataFrame
    draw: Callable[[], Figure]
    table: str | None = None
    of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kind:
    """A chart of result rows, drawn when some row has all of `metrics[:need]`."""

    key: str
    title: str
    caption: str
    draw: Callable[[pd.DataFrame], Figure]
    metrics: tuple[str, ...]
    need: int = 1


_TRADE = _Kind(
    "trade",
    "Latency against peak memory",
    "Down and to the left is better: less memory held, less host time for one alloc. The line"
    " joins the median to the 99th percentile. Host time only; device time is elsewhere.",
    figures.latency_against_memory,
    ("peak_reserved", *figures.LATENCY),
    need=3,
)
_KINDS = (
    _Kind(
        "capacity",
        "Min capacity",
        "The smallest device on which each workload completes with no failed request. Nothing can"
        " go below the load bound.",
        figures.min_capacity,
        ("min_capacity",),
    ),
    _Kind(
        "overhead",
        "Overhead",
        "Peak reserved bytes over the max load; 1 is the bound. The axis fits the candidates: a"
        " floor's bar may be cut, its number is not.",
        figures.overhead,
        ("overhead",),
    ),
    _Kind(
        "fragmentation",
        "Internal and external fragmentation",
        "At the instant reserved bytes first peak. Internal: bytes lost to rounding. External: the"
        " part of the free bytes that is not in the largest free block.",
        figures.fragmentation,
        figures.FRAGMENTATION,
    ),
    _Kind(
        "host",
        "Host time per event",
        "The minimum of the passes, with a line to their median. Steady: the same allocator"
        " replays the trace again. Cold: a new allocator each pass.",
        figures.host_time,
        figures.HOST_TIME,
    ),
    _Kind(
        "device",
        "Device time",
        "What the calls to the device cost, on a logarithmic axis. On a simulated device it is"
        " modelled, an estimate; it is never part of host time.",
        figures.device_time,
        ("device_seconds",),
    ),
)


def trade(table: pd.DataFrame, case: Case, key: str) -> Chart | None:
    """Latency against memory for one case, None when no row has both."""
    mine = _rows_of(table, case)
    return _chart(mine, _TRADE, f"{key}-") if _drawable(mine, _TRADE) else None


def of_rows(table: pd.DataFrame) -> list[Chart]:
    """The charts of single metrics over every case."""
    return [_chart(table, kind) for kind in _KINDS if _drawable(table, kind)]


def across(table: pd.DataFrame) -> list[Chart]:
    """Heat maps over the cases and the stability of ranks; none for fewer than two cases."""
    found = cases(table)
    if len(found) < 2:
        return []
    looks = theme.looks(found)
    schema = {column.name: column for column in COLUMNS}
    made = [
        Chart(
            f"heat-{metric}",
            f"{schema[metric].heading.capitalize()} on every workload",
            "Colour: how many times the best allocator of the workload; darkest is best. A cell"
            " without colour was not measured or failed requests.",
            findings.describe(found, metric),
            table[[*_IDENTITY, metric]],
            partial(workload_figures.heat_map, found, metric),
        )
        for metric in HEAT
        if table[metric].notna().any()
    ]
    ranked = [metric for metric in RANKED if not workload_figures.ranks(found, metric).empty]
    if ranked:
        data = [
            workload_figures.ranks(found, metric)
            .rename_axis("allocator")
            .reset_index()
            .melt("allocator", var_name="case", value_name="rank")
            .assign(metric=metric)
            for metric in ranked
        ]
        made.append(
            Chart(
                "ranks",
                "Stability of the ranks",
                "The mark is the mean rank over the workloads, the bar reaches from the best to"
                " the worst, ticks are the single ranks. A short bar means that the choice does"
                " not depend on the workload.",
                " ".join(
                    describing.ranks(workload_figures.ranks(found, metric), metric)
                    for metric in ranked
                ),
                pd.concat(data, ignore_index=True),
                partial(workload_figures.rank_stability, found, ranked, looks),
            )
        )
    return made


def of_case(
    details: Details, case: Case, key: str, looks: Mapping[str, theme.Look]
) -> Iterator[Chart]:
    """The charts that need details of one case, each where there are any."""
    run = {"workload": case.workload, "device": case.device}
    memory, latency, percentiles, scaling, spans, free = (
        of_run(details, name, **run)
        for name in ("memory", "latency", "percentiles", "scaling", "lifetimes", "free_blocks")
    )
    if not memory.empty:
        yield Chart(
            f"{key}-memory",
            "Memory over time",
            "Light: reserved bytes; dark: allocated bytes; what lies between is held from the"
            " device but allocated to nothing. All panels share one scale.",
            findings.describe_memory(case),
            memory,
            partial(figures.memory_over_time, memory, case, looks),
            "memory",
            run,
        )
    if not latency.empty:
        yield Chart(
            f"{key}-latency",
            "Latency of single calls",
            "What fraction of the calls took at most so long; further left is faster. The axis"
            " ends beyond the slowest 99.9th percentile. Host time of the second pass over an"
            " allocator, the timer's own cost subtracted.",
            describing.latency(percentiles, 0.5),
            latency,
            partial(call_figures.latency_distribution, latency, looks),
            "latency",
            run,
        )
    if not percentiles.empty:
        yield Chart(
            f"{key}-percentiles",
            "Percentiles of single calls",
            "The mark is the percentile, the bar its 95 % confidence interval by order statistics,"
            " where there are calls enough for one; calls are taken as independent.",
            describing.latency(percentiles, 0.99),
            percentiles,
            partial(call_figures.percentiles, percentiles, looks),
            "percentiles",
            run,
        )
    if not scaling.empty:
        yield Chart(
            f"{key}-scaling",
            "Latency against live blocks",
            "Calls grouped by how many blocks were alive; a line that climbs is a search that"
            " grows with them.",
            describing.scaling(scaling),
            scaling,
            partial(call_figures.scaling, scaling, looks),
            "scaling",
            run,
        )
    if not free.empty:
        yield Chart(
            f"{key}-free",
            "Free blocks by size",
            "Free bytes in blocks of each size over the events. Many small blocks low down are"
            " memory that large requests cannot use.",
            describing.free_blocks(free),
            free,
            partial(workload_figures.free_blocks, free, case.allocators, looks),
            "free_blocks",
            run,
        )
    if not spans.empty:
        yield Chart(
            f"{key}-lifetimes",
            "Sizes and lifetimes of the blocks",
            "The workload itself, the same for every allocator: how many blocks, and how many"
            " bytes, of each size and lifetime it asks for.",
            describing.lifetimes(spans),
            spans,
            partial(workload_figures.lifetimes, spans),
            "lifetimes",
            run,
        )


def of_history(table: pd.DataFrame, looks: Mapping[str, theme.Look]) -> Iterator[Chart]:
    """A chart for each benchmark of `asv.history` that has values of allocators."""
    known = theme.looks_too([str(name) for name in table["allocator"].unique()], looks)
    named = table[table["allocator"] != ""]
    for n, (name, rows) in enumerate(named.groupby("benchmark", sort=False), 1):
        yield Chart(
            f"history-{n}",
            str(name),
            "Commits evenly spaced in order of their dates, the newest at the right; bars are"
            " asv's 99 % confidence intervals, where it gives them.",
            describing.history(rows),
            rows.assign(date=rows["date"].dt.strftime("%Y-%m-%d %H:%M")),
            partial(history_figures.history, rows, known),
        )


def absent(details: Details, found: Sequence[Case]) -> list[str]:
    """Which charts some cases lack, and why; one sentence each."""
    said = []
    for case in found:
        missing = [
            words
            for name, words in (
                ("memory", "memory over time"),
                ("blocks", "the address map"),
                ("free_blocks", "free blocks by size"),
                ("lifetimes", "sizes and lifetimes"),
                ("latency", "the distribution of latencies"),
            )
            if of_run(details, name, workload=case.workload, device=case.device).empty
        ]
        if missing == ["the distribution of latencies"]:
            said.append(f"{case.title}: no {missing[0]}: no host time was measured.")
        elif missing:
            said.append(
                f"{case.title}: no {', '.join(missing)}: the results are rows alone (these charts"
                f" come with {_FROM})."
            )
    return said


def _drawable(table: pd.DataFrame, kind: _Kind) -> bool:
    return bool(table[list(kind.metrics[: kind.need])].notna().all(axis=1).any())


def _chart(table: pd.DataFrame, kind: _Kind, prefix: str = "") -> Chart:
    found = cases(table)
    words = (
        findings.describe_trade(found, figures.LATENCY[1])
        if kind is _TRADE
        else _each(found, kind.metrics)
    )
    data = table[[*_IDENTITY, *kind.metrics]]
    key, draw = f"{prefix}{kind.key}", partial(kind.draw, table)
    return Chart(key, kind.title, kind.caption, words, data, draw)


def _rows_of(table: pd.DataFrame, case: Case) -> pd.DataFrame:
    return table[(table["workload"] == case.workload) & (table["device"] == case.device)]


def _each(found: Sequence[Case], metrics: Sequence[str]) -> str:
    """The metrics in words, one after the other, named when there are several."""
    words = [findings.describe(found, metric) for metric in metrics]
    if len(metrics) == 1:
        return words[0]
    names = [metric.replace("_", " ").capitalize() for metric in metrics]
    return " ".join(f"{name}: {text}" for name, text in zip(names, words, strict=True))
