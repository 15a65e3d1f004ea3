# SPDX-License-Identifier: Apache-2.0
"""The figures: a checked frame in, a Matplotlib figure out; one panel per workload or allocator.

Every allocator looks the same in all figures and is named next to its marks. Floors are gray and
never stretch an axis: a bar that does not fit is cut at the edge and labeled with its number.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.base import units
from allocbench.base.extra import needs_extra
from allocbench.reports.charts.looks import FAINT, FLOOR, Look, looks_of, titles_of
from allocbench.reports.rows.ranking import Case, cases, interval, marks, text
from allocbench.reports.rows.results import SCHEMA, Column

with needs_extra("report"):
    import seaborn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import (
        EngFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        StrMethodFormatter,
    )

    from allocbench.reports.charts import theme
    from allocbench.reports.charts.theme import INK, PAPER

Timeline: TypeAlias = Mapping[str, NDArray[np.float64]]
_BOUNDED = ("peak_reserved", "min_capacity")  # metrics that cannot lie below the max load
_NAMED = 6  # points that lines can connect with their names
_SLIGHTLY = 1.25  # a floor this many times beyond the candidates still fits their axis


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


def bars(
    panel: Axes, case: Case, column: Column, looks: Mapping[str, Look], bound: float | None
) -> None:
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
    panel.set_yticks(range(len(ends)), [looks[name].label for name in ends])
    panel.set_ylim(len(ends) - 0.5, -0.5)
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
    _finish_rows(panel, _axis_label(case, column, unit))


def dots(panel: Axes, case: Case, column: Column, looks: Mapping[str, Look]) -> None:
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
    panel.set_yticks(range(len(values)), [looks[name].label for name in values])
    panel.set_ylim(len(values) - 0.5, -0.5)
    panel.xaxis.set_major_locator(LogLocator(numticks=6))
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    _finish_rows(panel, _axis_label(case, column, unit))


def trade(
    panel: Axes,
    case: Case,
    looks: Mapping[str, Look],
    memory: str,
    latency: tuple[str, str],
) -> None:
    """Two latencies against bytes, joined per allocator, names in a column on the right.

    A stepped line joins the candidates that no other beats in both bytes and the first latency; the
    bound on the bytes is dotted. Allocators that failed requests are only named. Axes are
    logarithmic where the values span more than a factor of 8. Floors far beyond the candidates are
    named below the panel instead.
    """
    points = {
        name: (x, low, high)
        for name in case.allocators
        if name not in case.failed
        and (x := case.number(name, memory)) is not None
        and (low := case.number(name, latency[0])) is not None
        and (high := case.number(name, latency[1])) is not None
    }
    if not points:
        return _say(panel, f"{SCHEMA[latency[0]].heading}: not measured")
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
    bound = [] if case.max_load is None or memory not in _BOUNDED else [case.max_load / x_unit]
    for corner in bound:
        panel.axvline(corner, color=INK, lw=0.9, ls=":")
    _span_axis(panel, "x", [*bound, *(x / x_unit for x, _, _ in points.values())])
    _span_axis(panel, "y", [y / y_unit for _, *pair in points.values() for y in pair])
    far = ", ".join(f"{looks[name].label} at {units.size(x)}" for name, x in beyond.items())
    failed = ", ".join(looks[name].label for name in case.failed)
    notes = (("beyond", far), ("failed requests", failed))
    more = "; ".join(f"{what}: {names}" for what, names in notes if names)
    panel.set_xlabel(f"{SCHEMA[memory].heading}, {x_name}{f' ({more})' if more else ''}")
    panel.set_ylabel(f"host time of one alloc, {y_name}")
    ends = {name: (x / x_unit, high / y_unit) for name, (x, _, high) in points.items()}
    if len(ends) <= _NAMED:
        _names_at_right(panel, ends, looks)
    else:
        _keys_at_right(panel, [looks[name] for name in ends])
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


def side_title(panel: Axes, words: str) -> None:
    """A quiet second title at the right end of a panel."""
    panel.set_title(words, loc="right", color=FAINT, fontweight="normal", fontsize=8)


def apart(positions: Sequence[float], gap: float) -> list[float]:
    """Positions within 0..1, moved as little as needed to be `gap` apart, in the same order."""
    order = np.argsort(positions, kind="stable")
    placed = np.array(positions, dtype=float)[order]
    for n in range(1, len(placed)):
        placed[n] = max(placed[n], placed[n - 1] + gap)
    limit = 1.0
    for n in range(len(placed) - 1, -1, -1):
        placed[n] = min(placed[n], limit)
        limit = placed[n] - gap
    moved = np.empty_like(placed)
    moved[order] = placed
    return [float(position) for position in moved]


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


def _finish_rows(panel: Axes, label: str) -> None:
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


def _names_at_right(
    panel: Axes, ends: Mapping[str, tuple[float, float]], looks: Mapping[str, Look]
) -> None:
    """The name of each point, right of the panel and without overlap, connected by a thin line."""
    to_fraction = panel.transScale + panel.transLimits
    heights = [float(to_fraction.transform(point)[1]) for point in ends.values()]
    for (name, point), height in zip(ends.items(), apart(heights, 0.068), strict=True):
        panel.annotate(
            looks[name].label,
            point,
            xytext=(1.04, height),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": FLOOR, "lw": 0.6, "shrinkA": 1, "shrinkB": 4},
        )


def _keys_at_right(panel: Axes, shown: Sequence[Look]) -> None:
    """Names with their marks to the right of a panel: lines to so many names would cross."""
    keys = [
        Line2D([], [], marker=look.marker, color=look.color, ls="", ms=6, label=look.label)
        for look in shown
    ]
    panel.legend(handles=keys, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)


def _say(panel: Axes, words: str) -> None:
    """Write in a panel why it is empty."""
    panel.set_axis_off()
    panel.text(0.5, 0.5, words, ha="center", va="center", color=FAINT, transform=panel.transAxes)


Draw: TypeAlias = Callable[[Axes, Case, Column, Mapping[str, Look]], None]
Bound: TypeAlias = Callable[[Case], float | None]
_LINES = ("event", "requested", "allocated", "reserved")
LATENCY = ("alloc_p50_seconds", "alloc_p99_seconds")
FRAGMENTATION = ("fragmentation_ratio", "internal_fragmentation")
STABLE_ADDRESSES = ("stable_address_share", "stable_address_bytes_share")
HOST_TIME = ("seconds_per_event_steady", "seconds_per_event_cold")
_MOST_POINTS = 240  # a panel is about as many pixels wide


def memory_over_time(memory: pd.DataFrame, case: Case, looks: Mapping[str, Look]) -> Figure:
    """Reserved, allocated and requested bytes over the events of one case, by allocator.

    `memory` is that table of the case. Long ones are drawn by the maximum of each interval.
    """
    present = set(memory["allocator"])
    names = [name for name in case.allocators if name in present]
    lines = {name: _thin(memory[memory["allocator"] == name]) for name in names}
    sampled = {name: float(line["reserved"].max()) for name, line in lines.items()}
    peaks = {name: case.number(name, "peak_reserved") or sampled[name] for name in names}
    scaling = [name for name in names if name not in case.floors] or names
    top = 1.08 * max(case.max_load or 0, *(peaks[name] for name in scaling))
    divisor, unit = units.byte_unit(top)
    with theme.style():
        columns = 2 if len(names) in (2, 4) else 3
        figure, axes = theme.panels(len(names), 1.9 if len(names) > 3 else 2.6, columns)
        for n, (panel, name) in enumerate(zip(axes, names, strict=True)):
            timeline(panel, lines[name], case.max_load, looks[name], divisor)
            panel.set_ylim(0, top / divisor)
            panel.set_ylabel("" if n % columns else unit)
            panel.set_xlabel("event" if n + columns >= len(names) else "")
            panel.set_title(looks[name].label)
            off = ", off the scale" if peaks[name] > top else ""
            side_title(panel, f"peak {units.size(peaks[name])}{off}")
        theme.legend(figure, _memory_keys())
    return figure


def latency_against_memory(table: pd.DataFrame) -> Figure:
    """Host time of an alloc, median to 99th percentile, against the peak of reserved bytes."""
    all_cases = cases(table)
    looks, titles = looks_of(all_cases), titles_of(all_cases)
    most = max(len(case.allocators) for case in all_cases)
    with theme.style():
        figure, axes = theme.panels(len(all_cases), max(2.6, 0.2 * most + 0.9), 2)
        for panel, case in zip(axes, all_cases, strict=True):
            panel.set_title(titles[case.title])
            trade(panel, case, looks, "peak_reserved", LATENCY)
        keys = [
            Line2D([], [], marker="o", color=INK, ls="", label="p50"),
            Line2D([], [], marker="o", color=INK, ls="", mfc="none", label="p99"),
            Line2D([], [], color=FLOOR, lw=1, label="Pareto front of p50"),
        ]
        if any(case.max_load for case in all_cases):
            keys.append(_bound_key("max load (the bound)"))
        theme.legend(figure, keys)
    return figure


def overhead(table: pd.DataFrame) -> Figure:
    """Peak reserved bytes as a multiple of the max load; 1 is the bound."""
    return _bars(table, ["overhead"], bound=lambda case: 1.0)


def min_capacity(table: pd.DataFrame) -> Figure:
    """The smallest device on which each allocator completes each workload, with the max load."""
    return _bars(table, ["min_capacity"], bound=lambda case: case.max_load)


def fragmentation(table: pd.DataFrame) -> Figure:
    """The share of the peak that was never allocated, and the share lost inside blocks."""
    return _bars(table, FRAGMENTATION)


def stable_addresses(table: pd.DataFrame) -> Figure:
    """The shares of blocks and of bytes that are at the same address in each step."""
    return _bars(table, STABLE_ADDRESSES)


def host_time(table: pd.DataFrame) -> Figure:
    """Host time per event, steady and cold: the minimum of the passes, a line to their median."""
    return _bars(table, HOST_TIME)


def device_time(table: pd.DataFrame) -> Figure:
    """What the device calls cost; each axis says whether it was modelled or measured."""
    column = SCHEMA["device_seconds"]
    return _rows(table, [column], lambda panel, case, _, looks: dots(panel, case, column, looks))


def _bars(table: pd.DataFrame, metrics: Sequence[str], bound: Bound = lambda case: None) -> Figure:
    columns = [SCHEMA[metric] for metric in metrics]

    def draw(panel: Axes, case: Case, column: Column, looks: Mapping[str, Look]) -> None:
        bars(panel, case, column, looks, bound(case))

    figure = _rows(table, columns, draw)
    if any(bound(case) for case in cases(table)):
        with theme.style():
            theme.legend(figure, [_bound_key("max load")])
    return figure


def _rows(table: pd.DataFrame, columns: Sequence[Column], draw: Draw) -> Figure:
    """A row per allocator: a panel per workload, and per column side by side when there are two.

    Names are shown at the left panel only if its neighbors have the same allocators.
    """
    all_cases = cases(table)
    looks, titles = looks_of(all_cases), titles_of(all_cases)
    wanted = [(case, column) for case in all_cases for column in columns]
    across = min(len(wanted), len(columns) if len(columns) > 1 else 3)
    most = max(len(case.allocators) for case in all_cases)
    with theme.style():
        figure, axes = theme.panels(len(wanted), 0.22 * most + 0.85, across)
        for n, (panel, (case, column)) in enumerate(zip(axes, wanted, strict=True)):
            draw(panel, case, column, looks)
            panel.set_title(titles[case.title])
            if n % across and wanted[n - 1][0].allocators == case.allocators:
                panel.set_yticks(panel.get_yticks(), [])
    return figure


def _thin(given: pd.DataFrame) -> Timeline:
    """The columns as arrays of at most `_MOST_POINTS`, by the maximum of intervals."""
    arrays = {name: given[name].to_numpy(dtype=float) for name in _LINES}
    count = len(given)
    if count <= _MOST_POINTS:
        return arrays
    starts = np.arange(_MOST_POINTS) * count // _MOST_POINTS
    thinned = {name: np.maximum.reduceat(array, starts) for name, array in arrays.items()}
    return {**thinned, "event": np.append(arrays["event"][starts[:-1]], arrays["event"][-1])}


def _memory_keys() -> list[Patch | Line2D]:
    return [
        Patch(color=FLOOR, alpha=0.35, label="reserved", lw=0),
        Patch(color=FLOOR, alpha=0.9, label="allocated", lw=0),
        Line2D([], [], color=INK, lw=0.8, label="requested"),
        _bound_key("max load (the bound)"),
    ]


def _bound_key(label: str) -> Line2D:
    return Line2D([], [], color=INK, lw=0.9, ls=":", label=label)
