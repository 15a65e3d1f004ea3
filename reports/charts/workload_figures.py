# SPDX-License-Identifier: Apache-2.0
"""Figures of free memory, across workloads, over commits, and of single calls."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.base import units
from allocbench.base.extra import needs_extra
from allocbench.reports.charts.looks import (
    FAINT,
    LABEL_LETTERS,
    TITLE_LETTERS,
    Look,
    titles_of,
)
from allocbench.reports.rows.ranking import Case, ranked, ratios_to_best
from allocbench.reports.rows.results import SCHEMA

with needs_extra("report"):
    import seaborn
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    from allocbench.reports.charts import theme

Looks = Mapping[str, Look]
_DARK, _LIGHT = "#101418", "#ffffff"  # text on a colored cell, the same on light and dark pages


def free_blocks(table: pd.DataFrame, names: Sequence[str], looks: Looks) -> Figure:
    """Free bytes by size class over the events of one case, a panel per allocator.

    `table` is the table `free_blocks` of one case; `names` are its allocators.
    """
    shown = [name for name in names if (table["allocator"] == name).any()]
    top = table["bytes"].max()
    with theme.style():
        across = 3
        figure, axes = theme.panels(len(shown), 1.8, across)
        for n, (panel, name) in enumerate(zip(axes, shown, strict=True)):
            events, classes, cells = free_grid(table[table["allocator"] == name])
            mesh = panel.pcolormesh(
                np.append(events, events[-1] + 1),
                np.append(classes, classes[-1] + 1),
                np.where(cells > 0, cells, np.nan),
                norm=LogNorm(vmin=max(1, top / 1e6), vmax=max(top, 10)),
                cmap=theme.SEQUENTIAL,
                rasterized=True,
            )
            panel.set_title(looks[name].label)
            panel.set_ylabel("" if n % across else "size of free blocks")
            panel.set_xlabel("event" if n + across >= len(shown) else "")
            panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
            _size_classes(panel)
            panel.grid(visible=False)
            seaborn.despine(ax=panel)
        bar = figure.colorbar(mesh, ax=axes, pad=0.01, aspect=40, label="free bytes")
        _amounts(bar, of_bytes=True)
    return figure


def free_grid(rows: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Events (n), size classes (m), and the free bytes (m, n) of one allocator."""
    events, column = np.unique(rows["event"], return_inverse=True)
    low, high = int(rows["size_class"].min()), int(rows["size_class"].max())
    cells = np.zeros((high - low + 1, len(events)), np.int64)
    cells[rows["size_class"].to_numpy() - low, column] = rows["bytes"]
    return events, np.arange(low, high + 1), cells


def heat_map(cases: Sequence[Case], metric: str) -> Figure:
    """One metric of every allocator on every workload; the ratio to the best of each workload.

    Color shows the ratio; the number is the metric itself, and n/a has no color.
    """
    column = SCHEMA[metric]
    names = list(dict.fromkeys(name for case in cases for name in case.allocators))
    labels, titles = units.short(names, LABEL_LETTERS), titles_of(cases)
    ratios, texts = ratios_to_best(cases, names, column)
    with theme.style():
        figure, (panel,) = theme.panels(1, 0.27 * len(names) + 1.1, 1)
        top = max(1.5, min(8.0, float(np.nanmax(ratios)) if np.isfinite(ratios).any() else 1.5))
        mesh = panel.pcolormesh(ratios, norm=LogNorm(1, top), cmap=theme.SEQUENTIAL)
        for (row, n), text in texts.items():
            ratio = ratios[row, n]
            dark = np.isfinite(ratio) and np.log(min(ratio, top)) / np.log(top) > 0.5
            ink = (_DARK if dark else _LIGHT) if np.isfinite(ratio) else FAINT
            size = 8 if len(cases) <= 8 else 6.5
            panel.text(n + 0.5, row + 0.5, text, ha="center", va="center", color=ink, fontsize=size)
        bar = figure.colorbar(mesh, ax=panel, pad=0.01, aspect=25, label="times the best")
        bar.outline.set_visible(False)
        steps = [step for step in (1, 1.2, 1.5, 2, 3, 4, 6, 8) if step <= top]
        bar.set_ticks(steps, labels=[f"{step:g}x" for step in steps], minor=False)
        bar.ax.yaxis.set_minor_locator(NullLocator())
        panel.set_yticks(np.arange(len(names)) + 0.5, [labels[name] for name in names])
        turned = len(cases) > 4
        panel.set_xticks(
            np.arange(len(cases)) + 0.5,
            [titles[case.title] for case in cases],
            rotation=30 if turned else 0,
            ha="right" if turned else "center",
        )
        panel.invert_yaxis()
        panel.tick_params(length=0, labelcolor=theme.INK)
        panel.grid(visible=False)
        seaborn.despine(ax=panel, left=True, bottom=True)
    return figure


def rank_stability(cases: Sequence[Case], metrics: Sequence[str], looks: Looks) -> Figure:
    """The rank of every candidate over the workloads: mean, and from best to worst.

    An allocator that failed requests on a workload has no rank on it.
    """
    with theme.style():
        rows = [ranks(cases, metric) for metric in metrics]
        most = max(len(table) for table in rows)
        figure, axes = theme.panels(len(metrics), 0.24 * most + 0.9, 2)
        for panel, metric, table in zip(axes, metrics, rows, strict=True):
            order = table.mean(axis=1).sort_values(kind="stable").index
            for n, name in enumerate(order):
                places = table.loc[name].dropna()
                look = looks[str(name)]
                panel.plot([places.min(), places.max()], [n, n], color=look.color, lw=3, alpha=0.35)
                panel.plot(places.mean(), n, look.marker, color=look.color, ms=6)
                for rank, count in places.value_counts().items():
                    panel.plot(rank, n, "|", color=look.color, ms=5 + count)
            panel.set_yticks(range(len(order)), [looks[str(name)].label for name in order])
            panel.set_ylim(len(order) - 0.5, -0.5)
            panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            panel.set_xlim(0.5, max(2, most) + 0.5)
            panel.set_xlabel(f"rank by {SCHEMA[metric].heading}; 1 is best")
            panel.tick_params(axis="y", labelcolor=theme.INK, length=0)
            panel.grid(axis="y", visible=False)
            seaborn.despine(ax=panel, left=True)
    return figure


def ranks(cases: Sequence[Case], metric: str) -> pd.DataFrame:
    """Ranks from 1, a row per candidate and a column per case; equal values share a rank."""
    by_case = {
        case.title: ranked(case.rows, SCHEMA[metric])
        .astype("float64")
        .rank(method="min", ascending=bool(SCHEMA[metric].lower_is_better))
        for case in cases
    }
    return pd.DataFrame(by_case).dropna(how="all")


def _amounts(bar: Any, of_bytes: bool) -> None:
    """The logarithmic scale next to a colored panel: bytes or counts."""
    bar.outline.set_visible(False)
    say = units.size if of_bytes else "{:,.0f}".format
    bar.ax.yaxis.set_major_locator(LogLocator(base=32 if of_bytes else 10))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda x, _: say(x)))
    bar.ax.yaxis.set_minor_locator(NullLocator())


def _size_classes(panel: Axes) -> None:
    panel.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: units.size(2.0**y)))


_MOST_TICKS = 8


def history(table: pd.DataFrame, looks: Mapping[str, Look]) -> Figure:
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
            panel.set_title(units.short([title], TITLE_LETTERS)[title])
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


def _line(panel: Axes, line: pd.DataFrame, commits: list[str], look: Look) -> None:
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


CALLS = ("alloc", "free")
_SHOWN = 0.999  # quantile
_PERCENTILES = {0.5: "p50", 0.99: "p99", 0.999: "p99.9"}


def latency_distribution(latency: pd.DataFrame, looks: Looks) -> Figure:
    """The fraction of calls that took at most a given host time, on a logarithmic axis.

    `latency` is that table of one case. A panel for allocs, one for frees; the axis ends beyond the
    slowest 99.9th percentile.
    """
    with theme.style():
        figure, axes = theme.panels(len(CALLS), 3.1, 2)
        for panel, call in zip(axes, CALLS, strict=True):
            mine = latency[(latency["call"] == call) & (latency["seconds"] > 0)]
            for name in _in_order(mine, looks):
                line = mine[mine["allocator"] == name]
                panel.plot(line["seconds"], line["quantile"], **_stroke(looks[name]))
            panel.set_title(call)
            panel.set_ylim(0, 1.02)
            panel.set_ylabel("fraction of the calls")
            tail = mine.loc[mine["quantile"] <= _SHOWN, "seconds"]
            if len(tail):
                panel.set_xlim(tail.min() / 1.2, tail.max() * 1.2)
            _seconds_axis(panel, "host time of one call, logarithmic")
        _names(figure, _in_order(latency, looks), looks)
    return figure


def percentiles(table: pd.DataFrame, looks: Looks) -> Figure:
    """Percentiles of single calls with the intervals of their passes, a row per allocator.

    `table` is the table `percentiles` of one case. One row of panels for allocs, one for frees.
    """
    names = _in_order(table, looks)
    with theme.style():
        figure, axes = theme.panels(len(CALLS) * len(_PERCENTILES), 0.19 * len(names) + 0.85, 3)
        wanted = [(call, q) for call in CALLS for q in _PERCENTILES]
        for n, (panel, (call, q)) in enumerate(zip(axes, wanted, strict=True)):
            mine = table[(table["call"] == call) & (table["quantile"] == q)]
            _whiskers(panel, mine, names, looks)
            panel.set_title(f"{call} {_PERCENTILES[q]}")
            first = n % len(_PERCENTILES) == 0
            labels = [looks[name].label for name in names] if first else []
            panel.set_yticks(range(len(names)), labels or [""] * len(names))
            panel.set_ylim(len(names) - 0.5, -0.5)
            panel.tick_params(axis="y", labelcolor=theme.INK, length=0)
            panel.grid(axis="y", visible=False)
            _seconds_axis(panel, "host time")
    return figure


def scaling(table: pd.DataFrame, looks: Looks) -> Figure:
    """The median and the 99th percentile of single calls against the number of live blocks.

    `table` is the table `scaling` of one case; both axes are logarithmic.
    """
    wanted = [(call, column) for column in ("median", "p99") for call in CALLS]
    wanted = [(c, column) for c, column in wanted if table[column].notna().any()]
    with theme.style():
        figure, axes = theme.panels(len(wanted), 2.5, 2)
        for panel, (call, column) in zip(axes, wanted, strict=True):
            mine = table[(table["call"] == call) & (table[column] > 0)]
            for name in _in_order(mine, looks):
                line, look = mine[mine["allocator"] == name], looks[name]
                middle = (line["live_from"] + line["live_to"]) / 2
                panel.plot(middle, line[column], marker=look.marker, ms=3, **_stroke(look))
            panel.set_xscale("log")
            panel.set_title(f"{call}, {column}")
            panel.set_xlabel("live blocks")
            panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
            panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
            panel.xaxis.set_minor_locator(NullLocator())
            _seconds_axis(panel, "host time", "y")
        _names(figure, _in_order(table, looks), looks)
    return figure


def _in_order(table: pd.DataFrame, looks: Looks) -> list[str]:
    """The allocators of a table in the order of the looks: floors last."""
    present = set(table["allocator"])
    return [name for name in looks if name in present]


def _whiskers(panel: Axes, rows: pd.DataFrame, names: Sequence[str], looks: Looks) -> None:
    right = 0.0
    columns = (rows[name].tolist() for name in ("allocator", "seconds", "low", "high"))
    for name, value, low, high in zip(*columns, strict=True):
        if not value > 0:
            continue
        n, look = names.index(name), looks[name]
        if low > 0 and high > 0:
            panel.plot([low, high], [n, n], color=look.color, lw=4, alpha=0.35)
        panel.plot(value, n, look.marker, color=look.color, ms=5)
        right = max(right, value, high if high > 0 else value)
        panel.annotate(
            units.seconds(value),
            (max(value, high if high > 0 else value), n),
            xytext=(6, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=7.5,
        )
    if right:
        panel.set_xscale("log")
        left = panel.get_xlim()[0]
        panel.set_xlim(left, right * max(6, (right / left) ** 0.6))


def _seconds_axis(panel: Axes, label: str, which: str = "x") -> None:
    panel.set(**{f"{which}scale": "log", f"{which}label": label})
    axis = panel.xaxis if which == "x" else panel.yaxis
    low, high = panel.get_xlim() if which == "x" else panel.get_ylim()
    steps = (1.0,) if high / low > 100 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=steps, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda x, _: _tick(x)))
    axis.set_minor_locator(NullLocator())
    seaborn.despine(ax=panel)


def _tick(seconds: float) -> str:
    divisor, unit = units.second_unit(seconds)
    return f"{seconds / divisor:g} {unit}"


def _stroke(look: Look) -> dict[str, Any]:
    dashes = (0, look.dash) if look.dash else "-"
    return {"color": look.color, "lw": 1.3, "linestyle": dashes}


def _names(figure: Figure, names: Sequence[str], looks: Looks) -> None:
    """The legend of lines, at the right."""
    keys = [Line2D([], [], label=looks[name].label, **_stroke(looks[name])) for name in names]
    theme.legend(figure, keys, "right")
