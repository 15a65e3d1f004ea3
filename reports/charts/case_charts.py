# SPDX-License-Identifier: Apache-2.0
"""The charts of one workload on one device that need more than result rows.

`KINDS` lists them. A chart is drawn if its table of details has rows; `absent` says which charts
are missing, and how to get them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from allocbench.base.extra import needs_extra
from allocbench.reports.advice import findings
from allocbench.reports.charts import describing
from allocbench.reports.rows.details import Details, of_run
from allocbench.reports.rows.ranking import Case

with needs_extra("report"):
    from matplotlib.figure import Figure

    from allocbench.reports.charts import call_figures, figures, theme, workload_figures
    from allocbench.reports.charts.chart import Chart

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
class Kind:
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


KINDS = (
    Kind(
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
    Kind(
        "latency",
        "latency",
        "Latency of single calls",
        "The fraction of calls that took at most this long; further left is faster. The axis ends"
        " just after the slowest 99.9th percentile. Host time of single calls in a later replay"
        " through the same allocator, with the cost of the timer subtracted.",
        lambda shown: describing.latency(shown.table("percentiles"), 0.5),
        lambda shown: call_figures.latency_distribution(shown.table("latency"), shown.looks),
        missed="the distribution of latencies",
    ),
    Kind(
        "percentiles",
        "percentiles",
        "Percentiles of single calls",
        "The mark is the median over the passes; the bar spans the lowest to the highest. The"
        " allocators take turns, pass by pass.",
        lambda shown: describing.latency(shown.table("percentiles"), 0.99),
        lambda shown: call_figures.percentiles(shown.table("percentiles"), shown.looks),
    ),
    Kind(
        "scaling",
        "scaling",
        "Latency against live blocks",
        "Calls grouped by the number of live blocks. A rising line means that the allocator"
        " searches longer when more blocks are alive.",
        lambda shown: describing.scaling(shown.table("scaling")),
        lambda shown: call_figures.scaling(shown.table("scaling"), shown.looks),
    ),
    Kind(
        "free",
        "free_blocks",
        "Free blocks by size",
        "Free bytes in blocks of each size, over the events. Many small blocks at the bottom are"
        " memory that large requests cannot use.",
        lambda shown: describing.free_blocks(shown.table("free_blocks")),
        lambda shown: workload_figures.free_blocks(
            shown.table("free_blocks"), shown.case.allocators, shown.looks
        ),
        missed="free blocks by size",
        in_explorer=True,
    ),
    Kind(
        "lifetimes",
        "lifetimes",
        "Sizes and lifetimes of the blocks",
        "The workload itself, which is the same for every allocator: the number of blocks and of"
        " bytes for each size and lifetime.",
        lambda shown: describing.lifetimes(shown.table("lifetimes")),
        lambda shown: workload_figures.lifetimes(shown.table("lifetimes")),
        missed="sizes and lifetimes",
    ),
)


def of_case(
    details: Details, case: Case, key: str, looks: Mapping[str, "theme.Look"]
) -> Iterator[Chart]:
    """The charts of one case whose tables have rows; their keys begin with `key`."""
    shown = Shown(case, details, looks)
    for kind in KINDS:
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
    wanted = [(kind.table, kind.missed) for kind in KINDS if kind.missed is not None]
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
