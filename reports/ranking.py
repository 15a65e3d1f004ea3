# SPDX-License-Identifier: Apache-2.0
"""Which rows may be compared, and which of them are best and worst.

Only candidates that served every request are ranked: a floor may not be recommended, and a row
that failed requests did less work than the others.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pandas as pd

from allocbench.reports.output import ResultError
from allocbench.reports.results import SCHEMA, Column

_SAME_TIME = 1.05

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
        """The allocators shown only to compare with."""
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
        """The load bound of the workload in bytes, None where no row has it."""
        bound = self.rows["max_load"].max()
        return None if pd.isna(bound) else int(bound)

    def number(self, allocator: str, metric: str) -> float | int | None:
        """One metric of one allocator, None for null."""
        return plain(self.rows.at[allocator, metric])

    def reference(self, name: str | None) -> str:
        """The row that ratios are to: `name`, or else the first candidate that ran, or any row.

        Raises ResultError when the case has no row `name`.
        """
        if name is None:
            first = self.allocators[0]
            return next((one for one in self.allocators if one not in self.unavailable), first)
        if name not in self.rows.index:
            raise ResultError(
                f"no row {name!r} to take ratios to on {self.title!r}; the rows are"
                f" {', '.join(self.allocators)}"
            )
        return name


def cases(table: pd.DataFrame) -> list[Case]:
    """The workload and device pairs of a checked frame, in their order, a workload's together."""
    many_devices, many_kinds = (table[name].nunique() > 1 for name in ("device", "device_kind"))
    found = []
    for (workload, device), rows in table.groupby(["workload", "device"], sort=False):
        title = f"{workload} on {device}" if many_devices else str(workload)
        if many_kinds:
            title += " (simulated)" if (rows["device_kind"] == "simulated").all() else " (measured)"
        ordered = rows.sort_values("candidate", ascending=False, kind="stable")
        found.append(Case(title, str(workload), str(device), ordered.set_index("allocator")))
    workloads = list(dict.fromkeys(case.workload for case in found))
    return sorted(found, key=lambda case: workloads.index(case.workload))


def ranked(rows: pd.DataFrame, column: Column) -> "pd.Series[float]":
    """The values that may be ranked, by allocator, best first; empty where none is better."""
    if column.lower_is_better is None:
        return pd.Series(dtype="float64")
    completed = rows["failures"].fillna(0) == 0
    values = rows.loc[rows["candidate"] & completed, column.name].dropna()
    return values.sort_values(ascending=column.lower_is_better, kind="stable")


def best(rows: pd.DataFrame, column: Column) -> tuple[str, ...]:
    """The allocators that are best, best first: more than one where they do not clearly differ.

    Where a column has the most of the passes beside their least, a row whose least is within the
    passes of the best row is not clearly worse: six passes enclose the median in 97 of 100 runs.
    Nor is one that differs by less than `_SAME_TIME`, which is what two equal allocators differ
    by when their objects lie elsewhere in the host's memory.
    """
    order = ranked(rows, column)
    if order.empty:
        return ()
    limit = order.iloc[0]
    if column.group in ("time", "latency"):
        limit *= _SAME_TIME
    if column.most in rows.columns:
        most = plain(rows.at[order.index[0], column.most])
        limit = limit if most is None else max(limit, most)
    tied = order <= limit if column.lower_is_better else order >= limit
    return tuple(str(name) for name in order.index[tied])


def marks(rows: pd.DataFrame, column: Column) -> dict[str, Mark]:
    """The marks of a column by allocator; none are best where none is clearly worse."""
    order = ranked(rows, column)
    winners = best(rows, column)
    if len(winners) == len(order):
        return {}
    found: dict[str, Mark] = dict.fromkeys(winners, "best")
    for name in order.index[order == order.iloc[-1]]:
        found.setdefault(str(name), "worst")
    return found


def extremes(case: Case, metric: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The best and the worst allocators of a case by one metric, empty where none is clear."""
    found = marks(case.rows, SCHEMA[metric])
    return (
        tuple(name for name, mark in found.items() if mark == "best"),
        tuple(name for name, mark in found.items() if mark == "worst"),
    )


def plain(value: object) -> float | int | None:
    """A cell of a frame as a Python number, None for null."""
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return None
    return value.item() if hasattr(value, "item") else value  # type: ignore[return-value]
