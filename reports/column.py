# SPDX-License-Identifier: Apache-2.0
"""The definition of one column of the result row."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
