# SPDX-License-Identifier: Apache-2.0
"""How allocators look in every chart, on a page and in figures."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from allocbench.base import units
from allocbench.reports.rows.ranking import Case

FAINT, FLOOR = "#5c6675", "#9aa3ad"
LABEL_LETTERS, TITLE_LETTERS = 26, 34
# seaborn's palette "colorblind", without the two that are hard to tell from others.
_COLORS = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#56b4e9", "#ca9161")
_MARKERS = "osD^vPX*<>"
_DASHES = ((), (6, 2), (2, 2), (6, 2, 1, 2))


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


def looks_of(cases: Sequence[Case]) -> dict[str, Look]:
    """One look per allocator over all cases; a floor is gray and hatched.

    The colors suit color-blind readers; after the seventh they repeat with another marker and
    dashed lines, and no figure relies on color alone.
    """
    names = [name for case in cases for name in case.allocators]
    return looks_of_names(names, {name for case in cases for name in case.floors})


def looks_of_names(given: Sequence[str], floors: Collection[str] = ()) -> dict[str, Look]:
    """One look per name; floors are gray."""
    names = list(dict.fromkeys(given))
    labels = units.short(names, LABEL_LETTERS)
    by_name: dict[str, Look] = {}
    for name in names:
        n = len(by_name)
        color = FLOOR if name in floors else _COLORS[n % len(_COLORS)]
        hatch = "////" if name in floors else ""
        dash = _DASHES[n // len(_COLORS) % len(_DASHES)]
        by_name[name] = Look(labels[name], color, _MARKERS[n % len(_MARKERS)], hatch, dash)
    return by_name


def titles_of(cases: Sequence[Case]) -> dict[str, str]:
    """The title of each case, cut to fit over a panel."""
    return units.short([case.title for case in cases], TITLE_LETTERS)
