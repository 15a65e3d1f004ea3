# SPDX-License-Identifier: Apache-2.0
"""Figures of single calls: how long they take, with what uncertainty, and how that grows."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from allocbench.base import units
from allocbench.base.extra import needs_extra

with needs_extra("report"):
    import seaborn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from allocbench.reports.charts import theme

Looks = Mapping[str, theme.Look]
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
            first = n % theme.columns(len(_PERCENTILES)) == 0
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


def _stroke(look: theme.Look) -> dict[str, Any]:
    dashes = (0, look.dash) if look.dash else "-"
    return {"color": look.color, "lw": 1.3, "linestyle": dashes}


def _names(figure: Figure, names: Sequence[str], looks: Looks) -> None:
    """The legend of lines, at the right."""
    keys = [Line2D([], [], label=looks[name].label, **_stroke(looks[name])) for name in names]
    theme.legend(figure, keys, "right")
