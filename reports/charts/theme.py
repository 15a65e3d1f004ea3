# SPDX-License-Identifier: Apache-2.0
"""How figures look: their settings and panels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
import seaborn
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from allocbench.reports.charts.looks import FAINT, FLOOR

INK, GRID, PAPER = "#1d2430", "#dfe3e8", "#fefefe"
WIDTH = 11.0  # inches: a laptop's page at 100 dots per inch
SEQUENTIAL = "cividis"  # bytes and counts: even steps for every kind of sight


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
        return
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
