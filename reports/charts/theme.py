# SPDX-License-Identifier: Apache-2.0
"""How figures look: colors, one look per allocator, panels; as inline SVG, they follow the page."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

import matplotlib
import seaborn
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from allocbench.base import units
from allocbench.reports.rows.ranking import Case

INK, FAINT, FLOOR, GRID, PAPER = "#1d2430", "#5c6675", "#9aa3ad", "#dfe3e8", "#fefefe"
WIDTH = 11.0  # inches: a laptop's page at 100 dots per inch
NARROW_WIDTH = 3.7  # a phone's
LABEL_LETTERS, TITLE_LETTERS = 26, 34
_COLORS = [seaborn.color_palette("colorblind").as_hex()[n] for n in (0, 1, 2, 3, 4, 9, 5)]
_MARKERS = "osD^vPX*<>"
_narrow: ContextVar[bool] = ContextVar("narrow", default=False)
_DASHES = ((), (6, 2), (2, 2), (6, 2, 1, 2))
SEQUENTIAL = "cividis"  # bytes and counts: even steps for every kind of sight


@dataclass(frozen=True)
class Look:
    """How one allocator is drawn in every figure; `label` is its name cut to fit.

    `dash` has the lengths of strokes and gaps of its lines in points, none for a solid line.
    """

    label: str
    color: str
    marker: str
    hatch: str
    dash: tuple[int, ...]


def looks(cases: Sequence[Case]) -> dict[str, Look]:
    """One look per allocator over all cases; a floor is gray and hatched.

    The colors suit color-blind readers; after the seventh they repeat with another marker and
    dashed lines, and no figure relies on color alone.
    """
    names = list(dict.fromkeys(name for case in cases for name in case.allocators))
    floors = {name for case in cases for name in case.floors}
    labels = units.short(names, LABEL_LETTERS)
    by_name: dict[str, Look] = {}
    for name in names:
        n = len(by_name)
        color = FLOOR if name in floors else _COLORS[n % len(_COLORS)]
        hatch = "////" if name in floors else ""
        dash = _DASHES[n // len(_COLORS) % len(_DASHES)]
        by_name[name] = Look(labels[name], color, _MARKERS[n % len(_MARKERS)], hatch, dash)
    return by_name


def looks_too(names: Sequence[str], known: Mapping[str, Look]) -> dict[str, Look]:
    """The known looks, and a look for every other name: another shade of gray ink, own marker."""
    by_name = dict(known)
    others = [name for name in dict.fromkeys(names) if name not in by_name]
    for n, (name, label) in enumerate(units.short(others, LABEL_LETTERS).items()):
        dash = _DASHES[n // len(_MARKERS) % len(_DASHES)]
        by_name[name] = Look(label, FAINT, _MARKERS[n % len(_MARKERS)], "", dash)
    return by_name


def titles(cases: Sequence[Case]) -> dict[str, str]:
    """The title of each case, cut to fit over a panel."""
    return units.short([case.title for case in cases], TITLE_LETTERS)


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


@contextmanager
def narrow() -> Iterator[None]:
    """Inside this context, figures are drawn for a phone: narrow, one panel below the other."""
    before = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(before)


def columns(wanted: int) -> int:
    """How many panels are side by side where `wanted` would fit a page."""
    return 1 if _narrow.get() else wanted


def legend(figure: Figure, keys: Sequence[Artist], side: Literal["top", "right"] = "top") -> None:
    """The legend outside of the panels."""
    if side == "right" and not _narrow.get():
        figure.legend(handles=keys, loc="outside right upper", frameon=False, handlelength=3)
        return
    across = 2 if _narrow.get() else len(keys)
    figure.legend(handles=keys, loc="outside upper left", ncols=across, frameon=False)


def panels(count: int, height: float, across: int) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, each `height` inches, in rows of at most `across`."""
    columns_ = min(count, columns(across))
    rows = -(-count // columns_)
    width = NARROW_WIDTH if _narrow.get() else WIDTH
    figure = Figure(figsize=(width, rows * height + 0.45), layout="constrained")
    axes = list(figure.subplots(rows, columns_, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


_VARIABLES = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    FLOOR: "var(--floor)",
    GRID: "var(--line)",
    PAPER: "var(--paper)",
}
_COLOR = re.compile("|".join(_VARIABLES))
_FONT_FAMILY = re.compile(r"font-family:[^;]*;?")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_ROUNDED = ("d", "x", "y", "transform")


def inline(figure: Figure, key: str, title: str, description: str) -> Markup:
    """The figure as one `<svg>` element, the same bytes for the same figure.

    Text stays text; ids begin with `key`, so that figures can share a page; a title and a
    description replace the picture for those who cannot see it.
    """
    root = ElementTree.fromstring(_draw(figure, key))
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {
            _local(name): _attribute(_local(name), value, key)
            for name, value in element.attrib.items()
        }
    for child in [c for c in root if c.tag == "metadata" or c.find("style") is not None]:
        root.remove(child)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    words = {"title": title, "desc": description}
    root.attrib.update({"role": "img", "aria-labelledby": f"{key}-title {key}-desc"})
    for n, (tag, text) in enumerate(words.items()):
        element = ElementTree.Element(tag, {"id": f"{key}-{tag}"})
        element.text = text
        root.insert(n, element)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _draw(figure: Figure, key: str) -> str:
    """The figure as Matplotlib writes it, without date and with ids that depend on `key` only."""
    buffer = io.StringIO()
    with style(), matplotlib.rc_context({"svg.hashsalt": key}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the page has other fonts
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def _local(name: str) -> str:
    """A name without its namespace: inside HTML, SVG needs none."""
    return name.rpartition("}")[2]


def _attribute(name: str, value: str, key: str) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{key}-{value.removeprefix('#')}"
    if name in _ROUNDED:
        return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.1f}", " ".join(value.split()))
    if name in ("style", "fill", "stroke"):
        value = _COLOR.sub(lambda color: _VARIABLES[color[0]], _FONT_FAMILY.sub("", value))
    return value.replace("url(#", f"url(#{key}-")
