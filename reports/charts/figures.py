# SPDX-License-Identifier: Apache-2.0
"""The figures of results: checked rows and tables of details in, files for papers and slides out.

`ROW_FIGURES` and `CASE_FIGURES` list them. A figure without data is left out.
"""

import io
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from allocbench.base import units
from allocbench.base.errors import needs_extra
from allocbench.base.files import write_bytes
from allocbench.reports.charts.looks import FAINT, FLOOR, LABEL_LETTERS, looks_of, titles_of
from allocbench.reports.charts.panels import (
    INK,
    LATENCY,
    SEQUENTIAL,
    Looks,
    Timeline,
    bars,
    dots,
    legend,
    panels,
    seconds_axis,
    style,
    timeline,
    trade,
)
from allocbench.reports.page.tables import HEAT
from allocbench.reports.rows import ResultError
from allocbench.reports.rows.bundle import Bundle
from allocbench.reports.rows.details import of_run
from allocbench.reports.rows.ranking import Case, cases, ratios_to_best
from allocbench.reports.rows.results import SCHEMA

with needs_extra("report"):
    import matplotlib
    import seaborn
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import NullLocator

DOTS_PER_INCH = 200
_LINES = ("event", "requested", "allocated", "reserved")
_MOST_POINTS = 240  # a panel is about as many pixels wide
_SHOWN = 0.999  # quantile
_DARK, _LIGHT = "#101418", "#ffffff"  # text on a colored cell
Bound: TypeAlias = Callable[[Case], float | None] | None


def write(results: Bundle, folder: str | Path) -> list[Path]:
    """Draw every figure into `folder` as SVG and as PNG; the files written, in order.

    The folder is created if it does not exist. The same results give the same bytes. Raises
    ResultError naming the path that cannot be written.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(f"{folder}: cannot make the folder: {error.strerror or error}") from error
    written = []
    for name, draw in figures_of(results):
        figure = draw()
        for kind in ("svg", "png"):
            path = place / f"{name}.{kind}"
            write_bytes(picture(figure, kind, name), path)
            written.append(path)
    return written


def figures_of(results: Bundle) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """What draws each figure, with a file name: the workload, where there is one, and the key."""
    table, found = results.rows, cases(results.rows)
    if len(found) > 1:
        for metric in HEAT:
            if table[metric].notna().any():
                yield f"heat-{metric}", partial(heat_map, found, metric)
    for key, (metrics, bound) in ROW_FIGURES.items():
        if table[metrics[0]].notna().any():
            yield key, partial(of_metrics, table, metrics, bound)
    looks, taken = looks_of(found), dict[str, int]()
    for n, case in enumerate(found, 1):
        name = _file_name(case.title) or f"workload-{n}"
        taken[name] = taken.get(name, 0) + 1
        name = f"{name}-{taken[name]}" if taken[name] > 1 else name
        if case.rows[["peak_reserved", *LATENCY]].notna().all(axis=1).any():
            yield f"{name}-trade", partial(latency_against_memory, case, looks)
        for key, drawn in CASE_FIGURES.items():
            run = {"workload": case.workload, "device": case.device}
            details = of_run(results.details, key, **run)
            if not details.empty:
                yield f"{name}-{key}", partial(drawn, details, case, looks)


def _file_name(title: str) -> str:
    """Letters, digits and single hyphens of a title, at most 60."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-")[:60]


def picture(figure: Figure, kind: str, salt: str) -> bytes:
    """The bytes of a picture of this kind, svg or png, the same for the same figure and salt."""
    buffer = io.BytesIO()
    date = {"Date": None} if kind == "svg" else {}
    with style(), matplotlib.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format=kind, dpi=DOTS_PER_INCH, facecolor="white", metadata=date)
    return buffer.getvalue()


def memory_over_time(memory: pd.DataFrame, case: Case, looks: Looks) -> Figure:
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
    with style():
        columns = 2 if len(names) in (2, 4) else 3
        figure, axes = panels(len(names), 1.9 if len(names) > 3 else 2.6, columns)
        for n, (panel, name) in enumerate(zip(axes, names, strict=True)):
            timeline(panel, lines[name], case.max_load, looks[name], divisor)
            panel.set_ylim(0, top / divisor)
            panel.set_ylabel("" if n % columns else unit)
            panel.set_xlabel("event" if n + columns >= len(names) else "")
            panel.set_title(looks[name].label)
            off = ", off the scale" if peaks[name] > top else ""
            words = f"peak {units.size(peaks[name])}{off}"
            panel.set_title(words, loc="right", color=FAINT, fontweight="normal", fontsize=8)
        keys = [
            Patch(color=FLOOR, alpha=0.35, label="reserved", lw=0),
            Patch(color=FLOOR, alpha=0.9, label="allocated", lw=0),
            Line2D([], [], color=INK, lw=0.8, label="requested"),
            _bound_key("max load (the bound)"),
        ]
        legend(figure, keys)
    return figure


def latency_against_memory(case: Case, looks: Looks) -> Figure:
    """Host time of an alloc, median to 99th percentile, against the peak of reserved bytes."""
    with style():
        figure, (panel,) = panels(1, max(2.6, 0.2 * len(case.allocators) + 0.9), 1)
        panel.set_title(titles_of([case])[case.title])
        trade(panel, case, looks)
        keys = [
            Line2D([], [], marker="o", color=INK, ls="", label="p50"),
            Line2D([], [], marker="o", color=INK, ls="", mfc="none", label="p99"),
            Line2D([], [], color=FLOOR, lw=1, label="Pareto front of p50"),
        ]
        if case.max_load:
            keys.append(_bound_key("max load (the bound)"))
        legend(figure, keys)
    return figure


def of_metrics(table: pd.DataFrame, metrics: Sequence[str], bound: Bound = None) -> Figure:
    """A row per allocator: a panel per workload, and per metric side by side when there are two.

    The marks of min_capacity and overhead have a dotted line at their `bound`. Device time, which
    differs by orders of magnitude, is a dot with its range on a logarithmic axis; everything else
    is a bar. Names are shown at the left panel only if its neighbors have the same allocators.
    """
    all_cases = cases(table)
    looks, titles = looks_of(all_cases), titles_of(all_cases)
    wanted = [(case, SCHEMA[metric]) for case in all_cases for metric in metrics]
    across = min(len(wanted), len(metrics) if len(metrics) > 1 else 3)
    most = max(len(case.allocators) for case in all_cases)
    with style():
        figure, axes = panels(len(wanted), 0.22 * most + 0.85, across)
        for n, (panel, (case, column)) in enumerate(zip(axes, wanted, strict=True)):
            if column.name == "device_seconds":
                dots(panel, case, column, looks)
            else:
                bars(panel, case, column, looks, bound and bound(case))
            panel.set_title(titles[case.title])
            if n % across and wanted[n - 1][0].allocators == case.allocators:
                panel.set_yticks(panel.get_yticks(), [])
        if bound and any(map(bound, all_cases)):
            legend(figure, [_bound_key("max load")])
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


def _bound_key(label: str) -> Line2D:
    return Line2D([], [], color=INK, lw=0.9, ls=":", label=label)


def heat_map(cases: Sequence[Case], metric: str) -> Figure:
    """One metric of every allocator on every workload; the ratio to the best of each workload.

    Color shows the ratio; the number is the metric itself, and n/a has no color.
    """
    column = SCHEMA[metric]
    names = list(dict.fromkeys(name for case in cases for name in case.allocators))
    labels, titles = units.short(names, LABEL_LETTERS), titles_of(cases)
    ratios, texts = ratios_to_best(cases, names, column)
    with style():
        figure, (panel,) = panels(1, 0.27 * len(names) + 1.1, 1)
        top = max(1.5, min(8.0, float(np.nanmax(ratios)) if np.isfinite(ratios).any() else 1.5))
        mesh = panel.pcolormesh(ratios, norm=LogNorm(1, top), cmap=SEQUENTIAL)
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
        panel.tick_params(length=0, labelcolor=INK)
        panel.grid(visible=False)
        seaborn.despine(ax=panel, left=True, bottom=True)
    return figure


def latency_distribution(latency: pd.DataFrame, case: Case, looks: Looks) -> Figure:
    """The fraction of calls that took at most a given host time, on a logarithmic axis.

    `latency` is that table of one case. A panel for allocs, one for frees; the axis ends beyond the
    slowest 99.9th percentile.
    """
    strokes: dict[str, dict[str, Any]] = {
        name: {
            "label": looks[name].label,
            "color": looks[name].color,
            "lw": 1.3,
            "linestyle": (0, looks[name].dash) if looks[name].dash else "-",
        }
        for name in case.allocators
        if (latency["allocator"] == name).any()
    }
    with style():
        figure, axes = panels(2, 3.1, 2)
        for panel, call in zip(axes, ("alloc", "free"), strict=True):
            mine = latency[(latency["call"] == call) & (latency["seconds"] > 0)]
            for name, stroke in strokes.items():
                line = mine[mine["allocator"] == name]
                panel.plot(line["seconds"], line["quantile"], **stroke)
            panel.set_title(call)
            panel.set_ylim(0, 1.02)
            panel.set_ylabel("fraction of the calls")
            tail = mine.loc[mine["quantile"] <= _SHOWN, "seconds"]
            if len(tail):
                panel.set_xlim(tail.min() / 1.2, tail.max() * 1.2)
            seconds_axis(panel, "host time of one call, logarithmic")
        legend(figure, [Line2D([], [], **stroke) for stroke in strokes.values()], "right")
    return figure


ROW_FIGURES: Mapping[str, tuple[Sequence[str], Bound]] = {
    "capacity": (("min_capacity",), lambda case: case.max_load),
    "overhead": (("overhead",), lambda case: 1.0),
    "fragmentation": (("fragmentation_ratio", "internal_fragmentation"), None),
    "stable": (("stable_address_share", "stable_address_bytes_share"), None),
    "host": (("seconds_per_event_steady", "seconds_per_event_cold"), None),
    "device": (("device_seconds",), None),
}
"""The arguments of `of_metrics` for each figure over every case. Some row must have the first."""
CASE_FIGURES: Mapping[str, Callable[[pd.DataFrame, Case, Looks], Figure]] = {
    "memory": memory_over_time,
    "latency": latency_distribution,
}
"""The figures of one case by the table of details that they draw."""
