# SPDX-License-Identifier: Apache-2.0
"""The visible texts of a drawn panel."""

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text


def shown(panel: Axes) -> list[Text]:
    """Titles, labels, annotations, and the labels of the ticks within the view."""
    texts = [panel.title, panel.xaxis.label, *panel.texts]
    texts += [*_ticks(panel.yaxis), *_ticks(panel.xaxis)]
    return [text for text in texts if text.get_text()]


def _ticks(axis: Axis) -> list[Text]:
    low, high = sorted(axis.get_view_interval())
    near = (high - low) * 1e-9
    ticks = axis.get_major_ticks()
    return [tick.label1 for tick in ticks if low - near <= tick.get_loc() <= high + near]
