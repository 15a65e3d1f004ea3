# SPDX-License-Identifier: Apache-2.0
"""How far the advice can be trusted, in words: what was tried in addition to the trace itself."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from allocbench.base import units
from allocbench.base.text import upper
from allocbench.reports.advice.choosing import OTHER_COSTS, ROOM
from allocbench.reports.advice.recommending import Advice
from allocbench.reports.rows.results import records

FEWEST_STEPS = 3
"""With fewer steps, there is no other order: the first step is not moved."""


@dataclass(frozen=True)
class OtherOrders:
    """Traces with the steps in another order. tried: how many; wanted: how many there should be.

    steps, kinds: of the trace; steps of the same kind request the same sizes.
    """

    tried: int
    wanted: int
    steps: int
    kinds: int

    @property
    def untested(self) -> bool:
        """Whether another order could need more, but none was tried."""
        return not self.tried and (self.steps < FEWEST_STEPS or self.kinds > 1)

    def note(self, failed: int | None) -> str:
        """On how many of them a request fails; "" for none."""
        tried = units.count(self.tried, "other order")
        return f"fails with the steps in {failed} of {tried}" if failed else ""

    def sentence(self, failed: int | None, choice: str = "it") -> str:
        """Whether a choice completes them, or why none was tried.

        failed: on how many a request fails, None if this choice was not tried on them. choice: what
        the sentence calls it.
        """
        if self.tried == 1 and failed is not None:
            verb = "does not complete" if failed else "completes"
            return f"With the steps in another order, {choice} {verb} the trace."
        if self.tried and failed is not None:
            completed = f"{self.tried - failed} of {units.count(self.tried, 'trace')}"
            return f"With the steps in another order, {choice} completes {completed}."
        if self.steps < FEWEST_STEPS:
            count = units.count(self.steps, "step") if self.steps else "no steps"
            return f"The trace has {count}, so other orders of them were not tried."
        if self.kinds == 1:
            return "The steps request the same sizes, so other orders of them were not tried."
        if self.wanted and not self.tried:
            return "Other orders of the steps were not tried: their load exceeds the device."
        return "Other orders of the steps were not tried."


@dataclass(frozen=True)
class Confidence:
    """How reliable the advice is. grounds: one sentence per reason."""

    level: Literal["none", "low", "medium", "high"]
    grounds: tuple[str, ...]

    @property
    def text(self) -> str:
        """The level and the grounds on one line."""
        return " ".join([f"{self.level}.", *self.grounds])


def confidence(
    rows: pd.DataFrame,
    advice: Advice,
    *,
    orders: OtherOrders,
    coverage: str = "",
    grows: bool = False,
) -> Confidence:
    """How reliable the advice is, and why.

    rows: with failed_orders. coverage: what the trace lacks of its program, "" for a whole one.
    grows: whether the program keeps more in each step.
    """
    if advice.chosen is None:
        return Confidence("none", ())
    (row,) = [row for row in records(rows) if row["allocator"] == advice.chosen]
    doubts = int(bool(coverage)) + orders.untested
    grounds = [f"{upper(coverage)}."] if coverage else []
    need, capacity = row["min_capacity"], row["capacity"]
    if need is not None:
        spare = (capacity - need) / need if need else 0.0
        doubts += capacity - need < ROOM * capacity
        grounds.append(
            "It still fits if the program needs twice as much."
            if spare >= 1
            else f"It still fits if the program needs {units.percent(max(0.0, spare))} more."
        )
    grounds.append(orders.sentence(row["failed_orders"]))
    if not _measured(rows):
        doubts += advice.rival is not None
        when = advice.when or OTHER_COSTS
        grounds.append(
            "Device time is an estimate, but the recommendation is the same if device calls cost"
            " more or less."
            if advice.rival is None
            else f"Device time is an estimate; {advice.rival} would be recommended instead {when}."
        )
    grounds.append(_lengths(orders.steps, orders.kinds))
    if grows:
        grounds.append("The program keeps more in each step, so it needs more later.")
    level: Literal["low", "medium", "high"] = "high" if not doubts else "medium"
    return Confidence("low" if row["failed_orders"] or grows else level, tuple(grounds))


def _measured(rows: pd.DataFrame) -> bool:
    sources = "device_seconds_source"
    return sources in rows and set(rows[sources]) == {"measured"}


def _lengths(steps: int, kinds: int) -> str:
    if steps < 2:
        return "The trace does not show what other inputs would need."
    if kinds == 1:
        return (
            f"The trace's {steps} steps request the same sizes; it shows nothing about other"
            " lengths."
        )
    return (
        f"The trace has {steps} steps with {kinds} different sets of sizes; it shows nothing about"
        " longer inputs."
    )
