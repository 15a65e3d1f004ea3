# SPDX-License-Identifier: Apache-2.0
"""The texts that a drawn panel shows."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text


def shown(panel: Axes) -> list[Text]:
    """Titles, labels, annotations, and the labels of those ticks that lie within the view."""
    found = [panel.title, panel.xaxis.label, *panel.texts]
    found += [*_ticks(panel.yaxis), *_ticks(panel.xaxis)]
    return [text for text in found if text.get_text()]


def _ticks(axis: Axis) -> list[Text]:
    low, high = sorted(axis.get_view_interval())
    near = (high - low) * 1e-9
    ticks = axis.get_major_ticks()
    return [tick.label1 for tick in ticks if low - near <= tick.get_loc() <= high + near]
