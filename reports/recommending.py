# SPDX-License-Identifier: Apache-2.0
"""Which allocator to use: a ranking for an objective, a reason with numbers, a confidence.

Pure functions over frames. A row needs: allocator, candidate, failures, min_capacity, host_seconds
and device_seconds, both per event. Host seconds are measured; device seconds are what the device
says, on a simulated one an estimate. They are added here, and here alone, to rank: an allocator
that asks the device for every request is slow however few instructions it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pandas as pd

from allocbench.reports import units
from allocbench.reports.results import records

Objective: TypeAlias = Literal["memory", "latency", "balanced"]
OBJECTIVES: tuple[Objective, ...] = ("memory", "latency", "balanced")

PROGRAM_SECONDS = 10e-6
"""Seconds of the program's own work per event that `balanced` assumes: about one kernel launch."""
_TOLERANCE: dict[Objective, float] = {"memory": 1.01, "latency": 1.1, "balanced": 1.01}
"""Scores within this factor do not clearly differ: pages and rounding, or the noise of a clock."""
_NAME = 40  # letters of an allocator in a sentence
_CLEAR = 1.05
"""From this factor on the second is far behind."""


@dataclass(frozen=True)
class Recommendation:
    """Which allocator, why, and how sure.

    allocator: None where every candidate failed. alike: those that do not clearly differ from the
    best, the best first; the recommended one is `keep` where that is among them, for then nothing
    has to be changed, else the one of them that is best by the balanced objective. margin: the
    score of the best of the others divided by that of the best, None where there is none.
    agreement: the share of the perturbed traces on which the recommended one is not far behind the
    best, None where there are none. failed: those that did not serve every request, of the trace or
    of a perturbed one.
    """

    objective: Objective
    allocator: str | None
    alike: tuple[str, ...]
    margin: float | None
    agreement: float | None
    failed: tuple[str, ...]
    reason: str

    @property
    def confidence(self) -> Literal["high", "medium", "low"]:
        """High when the second is far behind and every perturbed trace agrees."""
        if self.agreement is not None and self.agreement < 2 / 3:
            return "low"
        if len(self.alike) > 1 or (self.margin is not None and self.margin < _CLEAR):
            return "low" if self.agreement is not None and self.agreement < 1 else "medium"
        return "high" if self.agreement in (1, None) else "medium"


def scores(rows: pd.DataFrame, objective: Objective) -> pd.Series[float]:
    """The score of each allocator that may be recommended, by name, the least (best) first.

    memory: min_capacity in bytes. latency: host and device seconds per event. balanced: the bytes
    times the seconds that the program holds them, its own work of PROGRAM_SECONDS per event
    included. Left out: floors, those that failed a request, and those without a min_capacity.
    """
    fit = rows[rows["candidate"] & (rows["failures"] == 0) & rows["min_capacity"].notna()]
    memory = fit["min_capacity"].astype("float64")
    seconds = fit["host_seconds"] + fit["device_seconds"]
    found = {
        "memory": memory,
        "latency": seconds,
        "balanced": memory * (PROGRAM_SECONDS + seconds),
    }[objective]
    return found.set_axis(fit["allocator"]).sort_values(kind="stable")


def recommend(
    rows: pd.DataFrame,
    objective: Objective,
    perturbed: tuple[pd.DataFrame, ...] = (),
    keep: str = "caching",
) -> Recommendation:
    """Recommend one of the rows for an objective.

    perturbed: the same allocators on perturbed traces, a frame for each. One that fails there is
    not recommended. keep: what programs run on today.
    """
    broken = {
        str(name)
        for frame in (rows, *perturbed)
        for name in frame.loc[frame["candidate"] & (frame["failures"] > 0), "allocator"]
    }
    order = scores(rows[~rows["allocator"].isin(broken)], objective)
    failed = tuple(sorted(broken))
    if order.empty:
        reason = "No candidate serves every request on this device."
        return Recommendation(objective, None, (), None, None, failed, reason)
    alike = _among_the_best(order, objective)
    balanced = scores(rows, "balanced")
    best = keep if keep in alike else str(balanced[balanced.index.isin(alike)].index[0])
    rest = order[~order.index.isin(alike)]
    second = rest if len(rest) else order.iloc[1:]
    margin = float(second.iloc[0] / order.iloc[0]) if len(second) else None
    votes = [_keeps_up(best, scores(one, objective)) for one in perturbed]
    agreement = sum(votes) / len(votes) if votes else None
    reason = _reason(rows, objective, order, alike, best, keep)
    return Recommendation(objective, best, alike, margin, agreement, failed, reason)


def _keeps_up(name: str, order: pd.Series[float]) -> bool:
    return name in order.index and bool(order[name] <= order.iloc[0] * _CLEAR)


def _among_the_best(order: pd.Series[float], objective: Objective) -> tuple[str, ...]:
    if order.empty:
        return ()
    return tuple(str(name) for name in order.index[order <= order.iloc[0] * _TOLERANCE[objective]])


def _reason(
    rows: pd.DataFrame,
    objective: Objective,
    order: pd.Series[float],
    alike: tuple[str, ...],
    best: str,
    keep: str,
) -> str:
    numbers = {row["allocator"]: row for row in records(rows)}
    short = units.short(list(numbers), _NAME)
    following = [str(name) for name in order.index if name not in alike][:1]
    then = [f"; the next, {short[name]}, {_told(numbers[name], objective)}" for name in following]
    end = f"{''.join(then)}."
    if len(alike) == 1:
        return f"{short[best]} {_told(numbers[best], objective)}{end}"
    others = units.names([short[name] for name in alike if name != best], most=4)
    why = "programs run on it already" if best == keep else "it has the best of memory and time"
    words = f"{short[best]} {_told(numbers[best], objective)}, and {others} nearly the same"
    return f"No clear difference by {objective}: {words}; of these, {why}{end}"


def _told(row: Mapping[str, Any], objective: Objective) -> str:
    memory = f"completes on {units.size(row['min_capacity'])}"
    host, device = (units.seconds(row[name]) for name in ("host_seconds", "device_seconds"))
    time = f"takes {host} of host and {device} of device time per event"
    return {"memory": memory, "latency": time, "balanced": f"{memory} and {time}"}[objective]
