# SPDX-License-Identifier: Apache-2.0
"""Figures of benchmarks over commits: a line for each allocator."""

from collections.abc import Mapping

import pandas as pd

from allocbench.base import units
from allocbench.base.extra import needs_extra

with needs_extra("report"):
    import seaborn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    from allocbench.reports.charts import theme

_MOST_TICKS = 8


def history(table: pd.DataFrame, looks: Mapping[str, theme.Look]) -> Figure:
    """One benchmark over commits: a panel per workload and machine, a line per allocator.

    `table` holds the rows of one benchmark from `asv.history`; commits are evenly spaced in order
    of their dates. Bars are asv's 99 % confidence intervals, where it gives them.
    """
    commits = list(dict.fromkeys(table["commit"]))
    cases = list(dict.fromkeys(zip(table["machine"], table["workload"], strict=True)))
    machines = {machine for machine, _ in cases}
    names = [name for name in looks if (table["allocator"] == name).any()]
    with theme.style():
        figure, axes = theme.panels(len(cases), 2.4, 2)
        for panel, (machine, workload) in zip(axes, cases, strict=True):
            mine = table[(table["machine"] == machine) & (table["workload"] == workload)]
            for (name, _), line in mine.groupby(["allocator", "parameters"], sort=False):
                _line(panel, line, commits, looks[str(name)])
            title = f"{workload} on {machine}" if len(machines) > 1 else workload
            panel.set_title(units.short([title], theme.TITLE_LETTERS)[title])
            _axes(panel, commits, str(table["unit"].iloc[0]))
        keys = [
            Line2D(
                [],
                [],
                color=looks[name].color,
                marker=looks[name].marker,
                ms=4,
                label=looks[name].label,
            )
            for name in names
        ]
        theme.legend(figure, keys, "right")
    return figure


def _line(panel: Axes, line: pd.DataFrame, commits: list[str], look: theme.Look) -> None:
    positions = [commits.index(commit) for commit in line["commit"]]
    dashes = (0, look.dash) if look.dash else "-"
    panel.plot(
        positions,
        line["value"],
        marker=look.marker,
        ms=3.5,
        color=look.color,
        lw=1.2,
        linestyle=dashes,
    )
    bounded = line["low"].notna() & line["high"].notna()
    for x, low, high, shown in zip(positions, line["low"], line["high"], bounded, strict=True):
        if shown:
            panel.plot([x, x], [low, high], color=look.color, lw=3, alpha=0.35)


def _axes(panel: Axes, commits: list[str], unit: str) -> None:
    step = -(-len(commits) // _MOST_TICKS)
    ticks = range(0, len(commits), step)
    panel.set_xticks(ticks, [commits[n][:7] for n in ticks], rotation=30, ha="right")
    panel.set_xlim(-0.5, len(commits) - 0.5)
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: say(y, unit)))
    seaborn.despine(ax=panel)


def say(value: float, unit: str) -> str:
    """A value in its unit."""
    if unit == "bytes":
        return units.size(value)
    return units.seconds(value) if unit == "seconds" else f"{value:g}"
