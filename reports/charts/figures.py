# SPDX-License-Identifier: Apache-2.0
"""The figures: a checked frame in, a Matplotlib figure out; one panel per workload or allocator.

Every allocator looks the same in all figures and is named next to its marks. Floors are gray and
never stretch an axis: a bar that does not fit is cut at the edge and labeled with its number.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from allocbench.base import units
from allocbench.base.extra import needs_extra
from allocbench.reports.rows.ranking import Case, cases
from allocbench.reports.rows.results import SCHEMA, Column

with needs_extra("report"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from allocbench.reports.charts import drawing, theme

Draw: TypeAlias = Callable[[Axes, Case, Column, Mapping[str, theme.Look]], None]
Bound: TypeAlias = Callable[[Case], float | None]
_LINES = ("event", "requested", "allocated", "reserved")
LATENCY = ("alloc_p50_seconds", "alloc_p99_seconds")
FRAGMENTATION = ("fragmentation_ratio", "internal_fragmentation")
STABLE_ADDRESSES = ("stable_address_share", "stable_address_bytes_share")
HOST_TIME = ("seconds_per_event_steady", "seconds_per_event_cold")
_MOST_POINTS = 240  # a panel is about as many pixels wide


def memory_over_time(memory: pd.DataFrame, case: Case, looks: Mapping[str, theme.Look]) -> Figure:
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
        columns = theme.columns(2 if len(names) in (2, 4) else 3)
        figure, axes = theme.panels(len(names), 1.9 if len(names) > 3 else 2.6, columns)
        for n, (panel, name) in enumerate(zip(axes, names, strict=True)):
            drawing.timeline(panel, lines[name], case.max_load, looks[name], divisor)
            panel.set_ylim(0, top / divisor)
            panel.set_ylabel("" if n % columns else unit)
            panel.set_xlabel("event" if n + columns >= len(names) else "")
            panel.set_title(looks[name].label)
            off = ", off the scale" if peaks[name] > top else ""
            drawing.side_title(panel, f"peak {units.size(peaks[name])}{off}")
        theme.legend(figure, _memory_keys())
    return figure


def latency_against_memory(table: pd.DataFrame) -> Figure:
    """Host time of an alloc, median to 99th percentile, against the peak of reserved bytes."""
    all_cases = cases(table)
    looks, titles = theme.looks(all_cases), theme.titles(all_cases)
    most = max(len(case.allocators) for case in all_cases)
    with theme.style():
        figure, axes = theme.panels(len(all_cases), max(2.6, 0.2 * most + 0.9), 2)
        for panel, case in zip(axes, all_cases, strict=True):
            panel.set_title(titles[case.title])
            drawing.trade(panel, case, looks, "peak_reserved", LATENCY)
        keys = [
            Line2D([], [], marker="o", color=theme.INK, ls="", label="p50"),
            Line2D([], [], marker="o", color=theme.INK, ls="", mfc="none", label="p99"),
            Line2D([], [], color=theme.FLOOR, lw=1, label="Pareto front of p50"),
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
    return _rows(
        table, [column], lambda panel, case, _, looks: drawing.dots(panel, case, column, looks)
    )


def _bars(table: pd.DataFrame, metrics: Sequence[str], bound: Bound = lambda case: None) -> Figure:
    columns = [SCHEMA[metric] for metric in metrics]

    def draw(panel: Axes, case: Case, column: Column, looks: Mapping[str, theme.Look]) -> None:
        drawing.bars(panel, case, column, looks, bound(case))

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
    looks, titles = theme.looks(all_cases), theme.titles(all_cases)
    wanted = [(case, column) for case in all_cases for column in columns]
    across = theme.columns(min(len(wanted), len(columns) if len(columns) > 1 else 3))
    most = max(len(case.allocators) for case in all_cases)
    with theme.style():
        figure, axes = theme.panels(len(wanted), 0.22 * most + 0.85, across)
        for n, (panel, (case, column)) in enumerate(zip(axes, wanted, strict=True)):
            draw(panel, case, column, looks)
            panel.set_title(titles[case.title])
            if n % across and wanted[n - 1][0].allocators == case.allocators:
                panel.set_yticks(panel.get_yticks(), [])
    return figure


def _thin(given: pd.DataFrame) -> drawing.Timeline:
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
        Patch(color=theme.FLOOR, alpha=0.35, label="reserved", lw=0),
        Patch(color=theme.FLOOR, alpha=0.9, label="allocated", lw=0),
        Line2D([], [], color=theme.INK, lw=0.8, label="requested"),
        _bound_key("max load (the bound)"),
    ]


def _bound_key(label: str) -> Line2D:
    return Line2D([], [], color=theme.INK, lw=0.9, ls=":", label=label)
