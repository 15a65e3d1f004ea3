# SPDX-License-Identifier: Apache-2.0
"""The definition of one column of the result row."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from allocbench.base import units

Unit: TypeAlias = Literal["bytes", "seconds", "ratio", "count", "bits", ""]
Group: TypeAlias = Literal[
    "identity",
    "workload",
    "memory",
    "fragmentation",
    "latency",
    "time",
    "device",
    "failures",
    "plan",
    "origin",
]


@dataclass(frozen=True)
class Column:
    """One column of the result row.

    `lower_is_better` is None if neither direction is better. A `fraction` is a ratio within 0..1,
    shown in percent. `median` names the column that holds the median of the passes whose minimum
    this column holds. `low` and `high` name the columns that hold the interval of a measured time:
    the minimum and maximum of its passes.
    """

    name: str
    group: Group
    unit: Unit
    heading: str
    definition: str
    lower_is_better: bool | None = None
    fraction: bool = False
    median: str = ""
    low: str = ""
    high: str = ""

    def text(self, number: float | int | None) -> str:
        """The number in the column's unit, "n/a" for None."""
        if number is None:
            return units.NOT_AVAILABLE
        if self.unit == "bytes":
            return units.size(number)
        if self.unit == "seconds":
            return units.seconds(number)
        if self.unit == "ratio":
            return units.percent(number) if self.fraction else units.times(number)
        if self.unit == "bits":
            return f"{number:.2f} bits"
        return f"{number:,}"

    def exact(self, number: float | int | None) -> str:
        """The number unrounded, with its unit."""
        if number is None:
            return units.NOT_AVAILABLE
        digits = f"{number:,}" if isinstance(number, int) else repr(number)
        return f"{digits} {self.unit}" if self.unit in ("bytes", "seconds", "bits") else digits
