# SPDX-License-Identifier: Apache-2.0
"""The figures of results: their keys, and what draws them.

`_ROW_CHARTS` lists the charts of result rows, `CASE_CHARTS` those of one case that need details.
Charts without data are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from allocbench.reports.charts import figures, workload_figures
from allocbench.reports.charts.looks import Look, looks_of, looks_too
from allocbench.reports.page.tables import HEAT
from allocbench.reports.rows.details import Details, of_run
from allocbench.reports.rows.ranking import Case, cases

RANKED = ("peak_reserved", "seconds_per_event_steady")


@dataclass(frozen=True)
class Chart:
    """One chart; `draw` makes its figure."""

    key: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class _RowChart:
    """A chart of result rows, drawn if some row has all of `metrics[:need]`."""

    key: str
    draw: Callable[[pd.DataFrame], Figure]
    metrics: tuple[str, ...]
    need: int = 1


_TRADE = _RowChart(
    "trade", figures.latency_against_memory, ("peak_reserved", *figures.LATENCY), need=3
)
_ROW_CHARTS = (
    _RowChart("capacity", figures.min_capacity, ("min_capacity",)),
    _RowChart("overhead", figures.overhead, ("overhead",)),
    _RowChart("fragmentation", figures.fragmentation, figures.FRAGMENTATION),
    _RowChart("stable", figures.stable_addresses, figures.STABLE_ADDRESSES),
    _RowChart("host", figures.host_time, figures.HOST_TIME),
    _RowChart("device", figures.device_time, ("device_seconds",)),
)


@dataclass(frozen=True)
class Shown:
    """The data of a chart: one case, its tables of details, and the looks of allocators."""

    case: Case
    details: Details
    looks: Mapping[str, Look]

    def table(self, name: str) -> pd.DataFrame:
        """The rows of a table of the details that belong to the case."""
        run = {"workload": self.case.workload, "device": self.case.device}
        return of_run(self.details, name, **run)


@dataclass(frozen=True)
class CaseChart:
    """A chart of one table of the details."""

    key: str
    table: str
    draw: Callable[[Shown], Figure]


CASE_CHARTS = (
    CaseChart(
        "memory",
        "memory",
        lambda shown: figures.memory_over_time(shown.table("memory"), shown.case, shown.looks),
    ),
    CaseChart(
        "latency",
        "latency",
        lambda shown: workload_figures.latency_distribution(shown.table("latency"), shown.looks),
    ),
    CaseChart(
        "percentiles",
        "percentiles",
        lambda shown: workload_figures.percentiles(shown.table("percentiles"), shown.looks),
    ),
    CaseChart(
        "scaling",
        "scaling",
        lambda shown: workload_figures.scaling(shown.table("scaling"), shown.looks),
    ),
    CaseChart(
        "free",
        "free_blocks",
        lambda shown: workload_figures.free_blocks(
            shown.table("free_blocks"), shown.case.allocators, shown.looks
        ),
    ),
)


def trade(table: pd.DataFrame, case: Case, key: str) -> Chart | None:
    """Latency against memory for one case; None if no row has both."""
    mine = table[(table["workload"] == case.workload) & (table["device"] == case.device)]
    return _chart(mine, _TRADE, f"{key}-") if _drawable(mine, _TRADE) else None


def of_rows(table: pd.DataFrame) -> list[Chart]:
    """The charts of single metrics over every case."""
    return [_chart(table, kind) for kind in _ROW_CHARTS if _drawable(table, kind)]


def across(table: pd.DataFrame) -> list[Chart]:
    """Heat maps over the cases and the stability of ranks; empty for fewer than two cases."""
    all_cases = cases(table)
    if len(all_cases) < 2:
        return []
    charts = [
        Chart(f"heat-{metric}", partial(workload_figures.heat_map, all_cases, metric))
        for metric in HEAT
        if table[metric].notna().any()
    ]
    ranked = [metric for metric in RANKED if not workload_figures.ranks(all_cases, metric).empty]
    if ranked:
        looks = looks_of(all_cases)
        draw = partial(workload_figures.rank_stability, all_cases, ranked, looks)
        charts.append(Chart("ranks", draw))
    return charts


def of_history(table: pd.DataFrame, looks: Mapping[str, Look]) -> Iterator[Chart]:
    """A chart for each benchmark of `asv.history` that has values of allocators."""
    all_looks = looks_too([str(name) for name in table["allocator"].unique()], looks)
    named = table[table["allocator"] != ""]
    for n, (_, rows) in enumerate(named.groupby("benchmark", sort=False), 1):
        yield Chart(f"history-{n}", partial(workload_figures.history, rows, all_looks))


def of_case(details: Details, case: Case, key: str, looks: Mapping[str, Look]) -> Iterator[Chart]:
    """The charts of one case whose tables have rows; their keys begin with `key`."""
    shown = Shown(case, details, looks)
    for kind in CASE_CHARTS:
        if not shown.table(kind.table).empty:
            yield Chart(f"{key}-{kind.key}", partial(kind.draw, shown))


def _drawable(table: pd.DataFrame, kind: _RowChart) -> bool:
    return bool(table[list(kind.metrics[: kind.need])].notna().all(axis=1).any())


def _chart(table: pd.DataFrame, kind: _RowChart, prefix: str = "") -> Chart:
    return Chart(f"{prefix}{kind.key}", partial(kind.draw, table))
