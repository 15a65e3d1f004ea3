# SPDX-License-Identifier: Apache-2.0
"""The panels of figures and how they look.

Every allocator looks the same in all figures and is named next to its marks. Floors are gray and
never stretch an axis: a bar that does not fit is cut at the edge and labeled with its number.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allocbench.base import units
from allocbench.base.errors import needs_extra
from allocbench.reports.charts.looks import FAINT, FLOOR, Look
from allocbench.reports.rows.ranking import Case, interval, marks, text
from allocbench.reports.rows.results import SCHEMA, Column

with needs_extra("report"):
    import matplotlib
    import seaborn
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import (
        EngFormatter,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        NullLocator,
        StrMethodFormatter,
    )

SEQUENTIAL = "cividis"  # bytes and counts: even steps for every kind of sight
INK, GRID, PAPER = "#1d2430", "#dfe3e8", "#fefefe"
WIDTH = 11.0  # inches: a laptop's page at 100 dots per inch
Looks: TypeAlias = Mapping[str, Look]
Timeline: TypeAlias = Mapping[str, NDArray[np.float64]]
LATENCY = ("alloc_p50_seconds", "alloc_p99_seconds")
_SLIGHTLY = 1.25  # a floor this many times beyond the candidates still fits their axis


@contextmanager
def style() -> Iterator[None]:
    """The settings for every figure; text is taken literally, never as mathematics."""
    settings: Any = {
        **seaborn.axes_style("whitegrid"),
        **seaborn.plotting_context("paper"),
        "font.family": "DejaVu Sans",  # comes with Matplotlib: the same layout everywhere
        "font.size": 8.5,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 8.5,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "legend.fontsize": 8.5,
        "text.color": INK,
        "axes.titlecolor": INK,
        "axes.labelcolor": FAINT,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "axes.edgecolor": FLOOR,
        "axes.linewidth": 0.8,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "hatch.linewidth": 0.6,
        "text.parse_math": False,
        "svg.fonttype": "none",
    }
    with matplotlib.rc_context(settings):
        yield


def legend(figure: Figure, keys: Sequence[Artist], side: Literal["top", "right"] = "top") -> None:
    """The legend outside of the panels."""
    if side == "right":
        figure.legend(handles=keys, loc="outside right upper", frameon=False, handlelength=3)
    else:
        figure.legend(handles=keys, loc="outside upper left", ncols=len(keys), frameon=False)


def panels(count: int, height: float, across: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, each `height` inches, in rows of at most `across`."""
    columns = min(count, across)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH, rows * height + 0.45), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def timeline(panel: Axes, line: Timeline, max_load: int | None, look: Look, divisor: float) -> None:
    """Bytes over events: areas for reserved and allocated, a line for requested, the bound."""
    event = line["event"]
    for name, opacity in (("reserved", 0.3), ("allocated", 0.5)):
        panel.fill_between(event, line[name] / divisor, color=look.color, alpha=opacity, lw=0)
    panel.plot(event, line["reserved"] / divisor, color=look.color, lw=1.2)
    panel.plot(event, line["requested"] / divisor, color=INK, lw=0.7)
    if max_load is not None:
        panel.axhline(max_load / divisor, color=INK, lw=0.9, ls=":")
    panel.set_xlim(event[0], event[-1] if event[-1] > event[0] else event[0] + 1)
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.grid(axis="x", visible=False)
    seaborn.despine(ax=panel, left=True)


def bars(panel: Axes, case: Case, column: Column, looks: Looks, bound: float | None) -> None:
    """A bar per allocator with its number at the end, the best in bold; n/a if it has no number.

    A line leads on to the median where the column is a minimum of passes. The axis fits the
    candidates: a floor's bar that does not fit is cut.
    """
    ends = {name: _bar_end(case, name, column) for name in case.allocators}
    finite = {name: end for name, end in ends.items() if end is not None}
    if not finite:
        return _say(panel, f"{column.heading}: not measured")
    scaling = [end for name, end in finite.items() if name not in case.floors]
    top = max([*(scaling or finite.values()), bound or 0]) or 1
    top = max([top, *(end for end in finite.values() if end <= _SLIGHTLY * top)])
    divisor, unit = _axis_unit(column, top)
    starts = {name: case.number(name, column.name) or 0 for name in ends}
    panel.barh(
        range(len(ends)),
        [min(start, top) / divisor for start in starts.values()],
        height=0.7,
        color=[looks[name].color for name in ends],
    )
    for row, (name, end) in enumerate(ends.items()):
        bar = panel.patches[row]
        if looks[name].hatch:
            bar.set(hatch=looks[name].hatch, edgecolor=PAPER)
        else:
            bar.set(linewidth=0)
        cut = (end or 0) > top
        tip = min(end or 0, top) / divisor
        if cut:
            panel.plot([tip * 0.93, tip * 0.95], [row + 0.4, row - 0.4], color=PAPER, lw=2.5)
        elif tip > starts[name] / divisor:
            panel.plot([starts[name] / divisor, tip], [row, row], color=INK, lw=1)
        _number(panel, (tip, row), case, name, column, ["cut"] if cut else [])
    if bound is not None:
        panel.axvline(bound / divisor, color=INK, lw=0.9, ls=":")
    panel.set_xlim(0, top / divisor * (1.6 if case.failed else 1.32))
    panel.xaxis.set_major_locator(MaxNLocator(5))
    if column.fraction:  # a share is at most 1; the rest of the axis is for the numbers
        panel.set_xticks([tick for tick in panel.get_xticks() if 0 <= tick <= 100])
        panel.set_xlim(0, top / divisor * (1.6 if case.failed else 1.32))
    _finish_rows(panel, [looks[name].label for name in ends], _axis_label(case, column, unit))


def dots(panel: Axes, case: Case, column: Column, looks: Looks) -> None:
    """A dot per allocator on a logarithmic axis, for numbers of very different sizes.

    A line spans the interval of the number. A value of 0 or n/a has no place on the axis; its
    number is at the left edge.
    """
    values = {name: case.number(name, column.name) for name in case.allocators}
    ends = {
        name: [end for end in interval(case.rows, name, column) if 0 < end < inf] or [value]
        for name, value in values.items()
        if value
    }
    shown = [end for pair in ends.values() for end in pair]
    if not shown:
        return _say(panel, f"{column.heading}: not measured")
    divisor, unit = _axis_unit(column, max(shown))
    left, right = min(shown) / divisor / 2, max(shown) / divisor
    panel.set_xscale("log")
    panel.set_xlim(left, right * max(8, (right / left) ** 0.55))
    for row, (name, value) in enumerate(values.items()):
        if value:
            look = looks[name]
            line = [end / divisor for end in ends[name]]
            panel.plot(line, [row] * len(line), color=INK, lw=1)
            panel.plot(value / divisor, row, look.marker, color=look.color, ms=6.5)
        tip = max(ends[name]) / divisor if value else left
        _number(panel, (tip, row), case, name, column, [])
    panel.xaxis.set_major_locator(LogLocator(numticks=6))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    _finish_rows(panel, [looks[name].label for name in values], _axis_label(case, column, unit))


def trade(panel: Axes, case: Case, looks: Looks) -> None:
    """Latencies of an alloc against peak reserved bytes, joined per allocator; names on the right.

    A stepped line joins the candidates that no other beats in both bytes and the first latency; the
    bound on the bytes is dotted. Allocators that failed requests are only named. Axes are
    logarithmic where the values span more than a factor of 8. Floors far beyond the candidates are
    named below the panel instead.
    """
    points = {
        name: (x, low, high)
        for name in case.allocators
        if name not in case.failed
        and (x := case.number(name, "peak_reserved")) is not None
        and (low := case.number(name, LATENCY[0])) is not None
        and (high := case.number(name, LATENCY[1])) is not None
    }
    if not points:
        return _say(panel, f"{SCHEMA[LATENCY[0]].heading}: not measured")
    candidates = [x for name, (x, *_) in points.items() if name not in case.floors]
    limit = _SLIGHTLY * max(candidates or [x for x, *_ in points.values()])
    beyond = {name: x for name, (x, *_) in points.items() if x > limit}
    points = {name: point for name, point in points.items() if name not in beyond}
    x_unit, x_name = units.byte_unit(max(x for x, _, _ in points.values()))
    y_unit, y_name = units.second_unit(max(high for _, _, high in points.values()))
    for name, (x, low, high) in points.items():
        look = looks[name]
        xs, ys = [x / x_unit] * 2, [low / y_unit, high / y_unit]
        panel.plot(xs, ys, color=look.color, lw=1.2, zorder=3)
        panel.plot(xs[0], ys[0], look.marker, color=look.color, ms=6, zorder=4)
        panel.plot(xs[1], ys[1], look.marker, mfc=PAPER, mec=look.color, ms=6, zorder=4)
    front = pareto_front({name: points[name][:2] for name in points if name not in case.floors})
    if len(front) > 1:
        xs, ys = zip(*(points[name][:2] for name in front), strict=True)
        steps = np.array(xs) / x_unit, np.array(ys) / y_unit
        panel.step(*steps, where="post", color=FLOOR, lw=1, zorder=2)
    bound = [] if case.max_load is None else [case.max_load / x_unit]
    for corner in bound:
        panel.axvline(corner, color=INK, lw=0.9, ls=":")
    _span_axis(panel, "x", [*bound, *(x / x_unit for x, _, _ in points.values())])
    _span_axis(panel, "y", [y / y_unit for _, *pair in points.values() for y in pair])
    far = ", ".join(f"{looks[name].label} at {units.size(x)}" for name, x in beyond.items())
    failed = ", ".join(looks[name].label for name in case.failed)
    notes = (("beyond", far), ("failed requests", failed))
    more = "; ".join(f"{what}: {names}" for what, names in notes if names)
    panel.set_xlabel(f"peak reserved, {x_name}{f' ({more})' if more else ''}")
    panel.set_ylabel(f"host time of one alloc, {y_name}")
    keys = [
        Line2D([], [], marker=look.marker, color=look.color, ls="", ms=6, label=look.label)
        for look in (looks[name] for name in points)
    ]
    panel.legend(handles=keys, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    seaborn.despine(ax=panel)


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names of the Pareto-optimal points: no other point dominates them.

    In order of the first coordinate; less is better in both.
    """
    front: list[str] = []
    for name in sorted(points, key=points.__getitem__):
        if not front or points[name][1] < points[front[-1]][1]:
            front.append(name)
    return front


def _bar_end(case: Case, name: str, column: Column) -> float | None:
    """Where the mark of a bar ends: at its number, or at the median next to it."""
    value = case.number(name, column.name)
    median = case.number(name, column.median) if column.median else None
    return value if value is None or median is None else max(value, median)


def _number(
    panel: Axes,
    point: tuple[float, float],
    case: Case,
    name: str,
    column: Column,
    notes: Sequence[str],
) -> None:
    """The number of one row, right of the point, with any remark about it."""
    value = text(case.rows, name, column)
    notes = [*notes, *(["failed"] if name in case.failed else [])]
    panel.annotate(
        f"{value} ({', '.join(notes)})" if notes else value,
        point,
        xytext=(6, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=8,
        color=FAINT if name in case.floors else INK,
        fontweight="bold" if marks(case.rows, column).get(name) == "best" else "normal",
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6},
    )


def _finish_rows(panel: Axes, names: Sequence[str], label: str) -> None:
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.set_xlabel(label)
    panel.set_ylabel("")
    panel.tick_params(axis="y", labelcolor=INK, length=0)
    panel.grid(axis="y", visible=False)
    seaborn.despine(ax=panel, left=True)


def _axis_unit(column: Column, top: float) -> tuple[float, str]:
    if column.unit == "bytes":
        return units.byte_unit(top)
    if column.unit == "seconds":
        return units.second_unit(top)
    return (0.01, "%") if column.fraction else (1.0, "")


def _axis_label(case: Case, column: Column, unit: str) -> str:
    label = column.name.replace("_", " ") if column.fraction else column.heading
    label = f"{label}, {unit}" if unit else label
    if column.name != "device_seconds":
        return label
    modelled = "estimate" in set(case.rows["device_seconds_source"])
    return f"{label} ({'estimate' if modelled else 'measured'})"


def _span_axis(panel: Axes, which: Literal["x", "y"], values: Sequence[float]) -> None:
    """Limits with room around the values; logarithmic when they span more than a factor of 8."""
    low, high = min(values), max(values)
    axis = panel.xaxis if which == "x" else panel.yaxis
    if low > 0 and high / low > 8:
        room = (high / low) ** 0.08
        panel.set(**{f"{which}scale": "log", f"{which}lim": (low / room, high * room)})
        steps = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        room = (high - low) * 0.12 or high * 0.12 or 1.0
        panel.set(**{f"{which}lim": (max(low - room, -0.02 * high), high + room)})
        axis.set_major_locator(MaxNLocator(5))


def _say(panel: Axes, words: str) -> None:
    panel.set_axis_off()
    panel.text(0.5, 0.5, words, ha="center", va="center", color=FAINT, transform=panel.transAxes)


def seconds_axis(panel: Axes, label: str) -> None:
    """A logarithmic axis of seconds below a panel, with a unit at each tick."""
    panel.set(xscale="log", xlabel=label)
    low, high = panel.get_xlim()
    steps = (1.0,) if high / low > 100 else (1.0, 2.0, 5.0)
    panel.xaxis.set_major_locator(LogLocator(subs=steps, numticks=8))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _tick(x)))
    panel.xaxis.set_minor_locator(NullLocator())
    seaborn.despine(ax=panel)


def _tick(seconds: float) -> str:
    divisor, unit = units.second_unit(seconds)
    return f"{seconds / divisor:g} {unit}"
