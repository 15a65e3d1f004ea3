# SPDX-License-Identifier: Apache-2.0
"""Which rows may be compared, and which of them are best and worst.

Only candidates that served every request are ranked: floors are not recommended, and an allocator
that failed requests did less work than the others.
"""

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.base import units
from allocbench.base.cards import label
from allocbench.reports.rows import ResultError, assumptions
from allocbench.reports.rows.assumptions import Estimate
from allocbench.reports.rows.results import Column

FEWEST_PASSES = 4
"""The passes of two equal allocators lie apart by chance in 1 of 35 runs with 4, 1 of 10 with 3."""

Mark: TypeAlias = Literal["", "best", "worst", "failed"]


@dataclass(frozen=True)
class Case:
    """One workload on one device: the rows that may be compared, in the order given.

    `rows` is indexed by allocator, floors last; `title` names the device only where there are
    several, and whether it is simulated or measured where there are both.
    """

    title: str
    workload: str
    device: str
    rows: pd.DataFrame

    @property
    def allocators(self) -> list[str]:
        """The allocators of the case, floors last."""
        return [str(name) for name in self.rows.index]

    @property
    def floors(self) -> list[str]:
        """The allocators shown only for comparison."""
        return [str(name) for name in self.rows.index[~self.rows["candidate"]]]

    @property
    def failed(self) -> dict[str, int]:
        """The allocators that failed requests, and how many."""
        failures = self.rows["failures"].dropna()
        return {str(name): int(n) for name, n in failures.items() if n > 0}

    @property
    def unavailable(self) -> dict[str, str]:
        """The allocators that cannot work on the device, and why."""
        return {str(name): str(why) for name, why in self.rows["unavailable"].dropna().items()}

    @property
    def max_load(self) -> int | None:
        """The max load of the workload in bytes, None if no row has it."""
        bound = self.rows["max_load"].max()
        return None if pd.isna(bound) else int(bound)

    def number(self, allocator: str, metric: str) -> float | int | None:
        """One metric of one allocator, None for null."""
        value: float | int | None = cell(self.rows, allocator, metric)
        return value

    def reference(self, name: str | None) -> str:
        """The row that ratios are to: `name`, or else the first candidate that ran, or any row.

        Raises ResultError when the case has no row `name`.
        """
        if name is None:
            first = self.allocators[0]
            return next(
                (allocator for allocator in self.allocators if allocator not in self.unavailable),
                first,
            )
        if name not in self.rows.index:
            raise ResultError(
                f"no row {name!r} to use as the reference on {self.title!r}; the rows are"
                f" {', '.join(self.allocators)}"
            )
        return name


_KINDS = {"cuda": "measured", "null": "null GPU"}


def cases(table: pd.DataFrame) -> list[Case]:
    """The workload and device pairs of a checked frame in order, grouped by workload."""
    many_devices, many_kinds = (table[name].nunique() > 1 for name in ("device", "device_kind"))
    all_cases = []
    for (workload, device), rows in table.groupby(["workload", "device"], sort=False):
        title = f"{workload} on {label(str(device))}" if many_devices else str(workload)
        if many_kinds:
            kinds = [_KINDS.get(kind, kind) for kind in rows["device_kind"].unique()]
            title += f" ({', '.join(kinds)})"
        ordered = rows.sort_values("candidate", ascending=False, kind="stable")
        all_cases.append(Case(title, str(workload), str(device), ordered.set_index("allocator")))
    workloads = list(dict.fromkeys(case.workload for case in all_cases))
    return sorted(all_cases, key=lambda case: workloads.index(case.workload))


def ranked(rows: pd.DataFrame, column: Column, failed: bool = False) -> dict[str, float]:
    """The values that may be ranked, by allocator, best first; empty where none is better.

    failed: whether also those of allocators that failed requests.
    """
    if column.lower_is_better is None:
        return {}
    values = {
        name: cell(rows, name, column.name)
        for name in map(str, rows.index)
        if cell(rows, name, "candidate") and (failed or not cell(rows, name, "failures"))
    }
    known = [(name, value) for name, value in values.items() if value is not None]
    return dict(sorted(known, key=itemgetter(1), reverse=not column.lower_is_better))


def ratios_to_best(
    cases: Sequence[Case], names: Sequence[str], column: Column
) -> tuple[NDArray[np.float64], dict[tuple[int, int], str]]:
    """One metric of allocators (rows) on cases (columns): ratios to the best of each, and texts.

    A ratio is NaN where there is no number, or where requests failed.
    """
    ratios = np.full((len(names), len(cases)), np.nan)
    texts: dict[tuple[int, int], str] = {}
    anywhere = column.name == "min_capacity"  # found on devices of other capacities
    for n, case in enumerate(cases):
        order = ranked(case.rows, column, failed=anywhere)
        best = next(iter(order.values()), np.nan)
        for row, name in enumerate(names):
            value = case.number(name, column.name) if name in case.rows.index else None
            failed = name in case.failed and not anywhere
            texts[row, n] = "failed" if failed else column.text(value)
            if value and best and not failed:
                ratios[row, n] = max(1.0, value / best)
    return ratios, texts


def interval(rows: pd.DataFrame, name: str, column: Column) -> tuple[float, float]:
    """The interval of a number of a row; both ends are the number itself if it was counted.

    For an estimated time, the ends are those of its assumed costs. For a measured time, the ends
    are the minimum and maximum of its passes: n passes enclose the median with a probability of
    1 - 2^(1 - n), which is 97 % for six (the sign test, inverted; Conover, Practical Nonparametric
    Statistics, 3.2). Fewer than FEWEST_PASSES: minus and plus infinity.
    """
    value = cell(rows, name, column.name)
    if value is None:
        return -math.inf, math.inf
    low, high = (cell(rows, name, end) for end in (column.low or column.name, column.high))
    if not measured(rows, name, column):
        counted = column.group != "device" or low is None or high is None
        return (value, value) if counted else (low, high)
    passes = cell(rows, name, "passes")
    if low is None or high is None or passes is None or passes < FEWEST_PASSES:
        return -math.inf, math.inf
    return low, high


def text(rows: pd.DataFrame, name: str, column: Column) -> str:
    """A number of a row for people: an estimate as its range."""
    value = cell(rows, name, column.name)
    if value is None or column.name != "device_seconds" or column.unit != "seconds":
        return column.text(value)
    if measured(rows, name, column):
        return column.text(value)
    return units.seconds_range(*interval(rows, name, column))


def best(rows: pd.DataFrame, column: Column) -> tuple[str, ...]:
    """The allocators that share the best place, best first: every other one is clearly worse."""
    return _place(rows, column, ranked(rows, column))


def marks(rows: pd.DataFrame, column: Column) -> dict[str, Mark]:
    """The marks of a column by allocator; none is best unless another is clearly worse.

    A place that most share although their values read differently is not marked: it would only
    show that the measurement was noisy.
    """
    order = ranked(rows, column)
    winners = best(rows, column)
    if len(winners) == len(order):
        return {}
    losers = _place(rows, column, dict(reversed(order.items())))
    by_name: dict[str, Mark] = {}
    if tells_apart(rows, column, winners):
        by_name |= dict.fromkeys(winners, "best")
    if tells_apart(rows, column, losers):
        by_name |= {name: "worst" for name in losers if name not in winners}
    return by_name


def tells_apart(rows: pd.DataFrame, column: Column, place: tuple[str, ...]) -> bool:
    """Whether allocators that share a place read the same, or are at most two thirds of all."""
    shown = {text(rows, name, column) for name in place}
    return len(shown) <= 1 or 3 * len(place) <= 2 * len(ranked(rows, column))


def _place(rows: pd.DataFrame, column: Column, order: Mapping[str, float]) -> tuple[str, ...]:
    """The allocators that share the first place of an order.

    These are the first one, those that do not clearly differ from it, and all between them: no
    value is left out that is nearer to the first one than another of the place.
    """
    if not order:
        return ()
    first, value = next(iter(order.items()))
    farthest = max(abs(order[name] - value) for name in _sharing(rows, column, order, first))
    return tuple(name for name in order if abs(order[name] - value) <= farthest)


def _sharing(
    rows: pd.DataFrame, column: Column, order: Mapping[str, float], place: str
) -> tuple[str, ...]:
    """The allocators that do not clearly differ from the named one, including itself.

    Values that read the same do not clearly differ. Estimates with the same assumed costs differ
    clearly if one is less with all costs within their ranges.
    """
    if (
        column.name == "device_seconds"
        and "device_assumptions" in rows.columns
        and not measured(rows, place, column)
    ):
        here = estimate(rows, place)
        estimates = {name: estimate(rows, name) for name in order}
        return tuple(
            name
            for name, there in estimates.items()
            if not here.surely_less(there) and not there.surely_less(here)
        )
    low, high = interval(rows, place, column)
    shown = text(rows, place, column)
    sharing = []
    for name in order:
        least, most = interval(rows, name, column)
        if (least <= high and low <= most) or text(rows, name, column) == shown:
            sharing.append(name)
    return tuple(sharing)


def estimate(rows: pd.DataFrame, name: str) -> Estimate:
    """The estimated device time of a row that has one."""
    columns = ("device_seconds", "device_seconds_source", "device_assumptions")
    row = {column: cell(rows, name, column) for column in columns}
    return assumptions.of_row({"allocator": name, **row}) or Estimate()


def measured(rows: pd.DataFrame, name: str, column: Column) -> bool:
    """Whether a number is a time that was measured, and so differs from pass to pass."""
    if column.group == "device" and column.name.startswith("device_seconds"):
        return bool(cell(rows, name, "device_seconds_source") == "measured")
    return column.group in ("time", "latency")


_Cells: TypeAlias = Mapping[str, Mapping[str, Any]]
_KNOWN: dict[int, tuple[weakref.ref[pd.DataFrame], _Cells]] = {}


def cell(rows: pd.DataFrame, name: str, column: str) -> Any:
    """A cell as a Python value, None for null and for a column that the frame lacks.

    All cells of a frame are converted at the first call, because pandas takes long to find one; the
    frame must not change after it.
    """
    key = id(rows)
    known = _KNOWN.get(key)
    if known is None or known[0]() is not rows:
        plain: Any = rows.astype(object).where(rows.notna(), None).to_dict("index")
        alive = weakref.ref(rows, lambda _: _KNOWN.pop(key, None))
        known = _KNOWN[key] = alive, {str(allocator): row for allocator, row in plain.items()}
    return known[1][name].get(column)
