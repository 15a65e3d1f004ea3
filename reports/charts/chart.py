# SPDX-License-Identifier: Apache-2.0
"""A chart: the figure, its data, how to read it, and what it shows in words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from allocbench.base.extra import needs_extra

with needs_extra("report"):
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Chart:
    """One chart: `draw` makes its figure and `data` holds what it shows as a tidy table.

    `table` names the table of the details that holds `data`, in the rows whose columns equal those
    in `of`; it is None for a chart with data of its own. A page with scripts draws a chart that is
    `in_explorer` itself.
    """

    key: str
    title: str
    caption: str
    words: str
    data: pd.DataFrame
    draw: Callable[[], Figure]
    table: str | None = None
    of: Mapping[str, str] = field(default_factory=dict)
    in_explorer: bool = False
