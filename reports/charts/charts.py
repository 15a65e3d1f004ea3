# SPDX-License-Identifier: Apache-2.0
"""The charts of result rows: single metrics, trade-offs, comparisons across workloads, history.

Charts without data are left out. `case_charts` lists the charts of details.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from allocbench.base.extra import needs_extra
from allocbench.reports.advice import findings
from allocbench.reports.charts import describing
from allocbench.reports.rows.ranking import Case, cases
from allocbench.reports.rows.results import COLUMNS

with needs_extra("report"):
    from matplotlib.figure import Figure

    from allocbench.reports.charts import figures, history_figures, theme, workload_figures
    from allocbench.reports.charts.chart import Chart

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
class _Kind:
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


_TRADE = _Kind(
    "trade",
    "Latency against peak memory",
    "Lower left is better: less memory and less host time per alloc. The line connects the"
    " median and the 99th percentile. Device time is not included.",
    figures.latency_against_memory,
    ("peak_reserved", *figures.LATENCY),
    need=3,
    words=lambda found, metrics: findings.describe_trade(found, metrics[2]),
)
_KINDS = (
    _Kind(
        "capacity",
        "Min capacity",
        "The smallest device on which each workload completes with no failed request. No allocator"
        " needs less than the max load.",
        figures.min_capacity,
        ("min_capacity",),
    ),
    _Kind(
        "overhead",
        "Overhead",
        "Peak reserved bytes divided by the max load; 1 is the lower bound. The axis fits the"
        " candidates, so the bar of a floor can be cut off; its label still gives the full number.",
        figures.overhead,
        ("overhead",),
    ),
    _Kind(
        "fragmentation",
        "Fragmentation",
        "Fragmentation ratio: the share of the peak reserved bytes that was never allocated."
        " Internal: the share of the allocated bytes that rounding takes when reserved bytes first"
        " peak.",
        figures.fragmentation,
        figures.FRAGMENTATION,
    ),
    _Kind(
        "stable",
        "Stable addresses",
        "Share of the blocks, and of the bytes, that are at the same address as in the step before,"
        " from step 3 on. A captured graph must be captured again when an input has moved.",
        figures.stable_addresses,
        figures.STABLE_ADDRESSES,
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
    return [_chart(table, kind) for kind in _KINDS if _drawable(table, kind)]


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
                    describing.ranks(workload_figures.ranks(all_cases, metric), metric)
                    for metric in ranked
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
            describing.history(rows),
            rows.assign(date=rows["date"].dt.strftime("%Y-%m-%d %H:%M")),
            partial(history_figures.history, rows, all_looks),
        )


def _drawable(table: pd.DataFrame, kind: _Kind) -> bool:
    return bool(table[list(kind.metrics[: kind.need])].notna().all(axis=1).any())


def _chart(table: pd.DataFrame, kind: _Kind, prefix: str = "") -> Chart:
    words = kind.words(cases(table), kind.metrics)
    data = table[[*_IDENTITY, *kind.metrics]]
    key, draw = f"{prefix}{kind.key}", partial(kind.draw, table)
    return Chart(key, kind.title, kind.caption, words, data, draw)


def _rows_of(table: pd.DataFrame, case: Case) -> pd.DataFrame:
    return table[(table["workload"] == case.workload) & (table["device"] == case.device)]
