# SPDX-License-Identifier: Apache-2.0
"""Estimated times, and whether their order depends on the assumed costs of device calls.

An estimate is linear in the assumed costs, and all allocators share these costs. So the difference
of two estimates is linear too. Each cost may lie anywhere in its range, independently of the
others: over this box, a linear function has its extremes where each cost is at one end of its
range. The sign of a difference over the box is therefore exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from allocbench.base import units

CALLS: Mapping[str, str] = {
    "malloc": "cudaMalloc",
    "free": "cudaFree",
    "map": "mapping a page",
    "unmap": "unmapping a page",
    "pool_malloc": "cudaMallocAsync",
    "pool_free": "cudaFreeAsync",
    "pool_grow": "growing a pool by a page",
    "pool_shrink": "shrinking a pool by a page",
}
"""The device calls in words."""
UNKNOWN = 3.0
"""An estimate without its costs is assumed to be within this factor of the truth."""
_NOISE = 1e-9  # of an estimate: sums of the same calls in another order differ by less


@dataclass(frozen=True, order=True)
class Cost:
    """The assumed cost of one device call with this number of bytes, and its range, in seconds."""

    call: str
    bytes: int
    low: float
    seconds: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A time in seconds: a fixed part, and how often each assumed cost is paid.

    The numbers of calls are negative where a difference has less of them.
    """

    fixed: float = 0.0
    calls: Mapping[Cost, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The estimate."""
        return self.fixed + sum(n * cost.seconds for cost, n in self.calls.items())

    @property
    def low(self) -> float:
        """The least value within the ranges of all costs."""
        return self.fixed + sum(
            n * (cost.low if n > 0 else cost.high) for cost, n in self.calls.items()
        )

    @property
    def high(self) -> float:
        """The largest value within the ranges of all costs."""
        return -(self * -1).low

    def __add__(self, other: Estimate) -> Estimate:
        costs = dict.fromkeys((*self.calls, *other.calls))
        return Estimate(
            self.fixed + other.fixed,
            {cost: self.calls.get(cost, 0.0) + other.calls.get(cost, 0.0) for cost in costs},
        )

    def __mul__(self, factor: float) -> Estimate:
        return Estimate(factor * self.fixed, {cost: factor * n for cost, n in self.calls.items()})

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference: both have the same costs."""
        return self + other * -1

    def surely_less(self, other: Estimate) -> bool:
        """Whether this is less than the other with all costs within their ranges."""
        return (self - other).high < -_NOISE * max(abs(self.seconds), abs(other.seconds))

    def may_be_less(self, other: Estimate) -> bool:
        """Whether this is less than the other with some costs within their ranges."""
        return (self - other).low < -_NOISE * max(abs(self.seconds), abs(other.seconds))

    def undecided(self, other: Estimate) -> bool:
        """Whether which of the two is less depends on where the costs lie in their ranges."""
        return self.may_be_less(other) and other.may_be_less(self)

    @property
    def text(self) -> str:
        """Its range, or its seconds where no cost is assumed."""
        return units.seconds_range(self.low, self.high)


def of_row(row: Mapping[str, Any]) -> Estimate | None:
    """The device time of a row, None where it has none.

    A measured time has no assumed cost. An estimate that does not say which costs it assumes, as
    in results of earlier versions, is within a factor of UNKNOWN, independently of other rows.
    """
    seconds, text = row.get("device_seconds"), row.get("device_assumptions")
    if seconds is None:
        return None
    if row.get("device_seconds_source") == "measured":
        return Estimate(seconds)
    if text is None:
        only = f"each device call of {row.get('allocator')}"
        return Estimate(calls={Cost(only, 0, seconds / UNKNOWN, seconds, seconds * UNKNOWN): 1.0})
    return Estimate(calls=dict(from_text(text)))


def per_event(row: Mapping[str, Any]) -> Estimate | None:
    """The device time of a row per event, None where it has none."""
    whole, each = of_row(row), row.get("device_seconds_per_event")
    if whole is None or each is None:
        return whole
    return whole * (each / row["device_seconds"]) if row["device_seconds"] else Estimate()


def to_text(calls: Iterable[tuple[Cost, float]]) -> str:
    """The column `device_assumptions`: JSON with the costs that are paid, and how often each is."""
    return json.dumps(
        [
            {
                "call": cost.call,
                "bytes": cost.bytes,
                "calls": n,
                "low": cost.low,
                "seconds": cost.seconds,
                "high": cost.high,
            }
            for cost, n in calls
            if n
        ]
    )


def from_text(text: str) -> Iterator[tuple[Cost, float]]:
    """The costs in a text of `to_text`, and how often each is paid; raises ValueError."""
    try:
        entries = json.loads(text)
        if not isinstance(entries, list):
            raise TypeError
        found = [
            (
                Cost(
                    str(entry["call"]),
                    int(entry["bytes"]),
                    *(float(entry[end]) for end in ("low", "seconds", "high")),
                ),
                float(entry["calls"]),
            )
            for entry in entries
        ]
    except (TypeError, KeyError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a list of assumed costs: {text[:40]!r}") from error
    for cost, n in found:
        if not (0 <= n < math.inf and 0 < cost.low <= cost.seconds <= cost.high < math.inf):
            raise ValueError(f"not a range of costs, or not a number of calls: {cost}, {n}")
    return iter(found)


def condition(less: Estimate, other: Estimate) -> str:
    """When the first takes less, by the cost of one device call alone; empty if none decides.

    All sizes of this call cost the same multiple of their estimates, and other calls their
    estimates. Of several calls, the one that decides nearest to its estimate.
    """
    difference = less - other
    found = []
    for call in CALLS:
        mine = {cost: n for cost, n in difference.calls.items() if cost.call == call}
        part = sum(n * cost.seconds for cost, n in mine.items())
        if not part:
            continue
        factor = 1 - difference.seconds / part  # at which the two are equal
        least = max(cost.low / cost.seconds for cost in mine)
        most = min(cost.high / cost.seconds for cost in mine)
        if least < factor < most:
            largest = max(mine, key=lambda cost: abs(mine[cost] * cost.seconds))
            found.append((factor, part < 0, largest))
    if not found:
        return ""
    factor, dearer, cost = min(found, key=lambda one: round(abs(math.log(one[0])), 9))
    return (
        f"only if {CALLS[cost.call]} takes {'more' if dearer else 'less'} than"
        f" {units.seconds(factor * cost.seconds)} for {units.size(cost.bytes)}"
        f" ({units.times(factor)} the estimate)"
    )


def largest_ratio(part: Estimate, whole: Estimate) -> float:
    """The largest ratio of two estimates within the ranges of all costs; the whole is positive.

    By Dinkelbach's algorithm (Management Science 13, 1967): the costs that make part - ratio *
    whole largest give the next ratio, until it no longer grows.
    """
    ratio = part.seconds / whole.seconds
    while True:
        difference = part - whole * ratio
        ends = {cost: cost.high if n > 0 else cost.low for cost, n in difference.calls.items()}
        better = _at(part, ends) / _at(whole, ends)
        if better <= ratio * (1 + _NOISE):
            return max(ratio, better)
        ratio = better


def _at(estimate: Estimate, costs: Mapping[Cost, float]) -> float:
    return estimate.fixed + sum(n * costs[cost] for cost, n in estimate.calls.items())
