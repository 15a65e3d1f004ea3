# SPDX-License-Identifier: Apache-2.0
"""A Matplotlib figure as inline SVG that follows the page: its colors, its font, its words."""

import io
import re
import warnings
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from allocbench.reports.charts import theme

_VARIABLES = {
    theme.INK: "var(--ink)",
    theme.FAINT: "var(--faint)",
    theme.FLOOR: "var(--floor)",
    theme.GRID: "var(--line)",
    theme.PAPER: "var(--paper)",
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
    with theme.style(), matplotlib.rc_context({"svg.hashsalt": key}), warnings.catch_warnings():
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
