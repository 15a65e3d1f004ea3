# SPDX-License-Identifier: Apache-2.0
"""What each allocator costs a program, and which costs least; the rules are in `recommending`.

A cost contains device time, which is estimated on a simulated device. An option is the best one at
the estimated costs of device calls; a rival is one that would be the best with other costs within
their assumed ranges. An option that is the best only at some of these costs is not worth more
settings than a rival changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from allocbench.base.spec import SpecSyntaxError, parse
from allocbench.reports.rows.assumptions import Estimate, condition, per_event

Kind: TypeAlias = Literal["default", "setting", "plug-in", "uncached"]

KEEP = "caching"
"""The default: PyTorch's own allocator."""
PROGRAM_SECONDS = 10e-6
"""Assumed seconds of a program's own work per event: about one kernel launch."""
ROOM = 0.05
"""The share of a device that must stay free for a program to fit with room."""
OTHER_COSTS = "if device calls cost more or less than estimated"
"""When an estimate of device time does not decide, and no single cost does."""
CLOSE = 0.005
"""Two needs that differ by less than this share of a device count as equal."""
CLEAR = 0.01
"""A need that is less by this share is worth a sentence."""


@dataclass(frozen=True)
class Weights:
    """Costs in percent of a program's running time.

    memory: for each percent of the device that is needed. time: for each percent by which the
    program takes longer through device calls, assuming PROGRAM_SECONDS of its own work per event.
    Host times are not used: they differ from run to run, and would change the choice. setting: for
    each setting in an environment variable that the program does not have yet. plug_in: for a
    package and lines in the program. breaks: for features that no longer work: tensors shared
    between processes with a plug-in, CUDA graphs without a cache.
    """

    memory: float = 1.0
    time: float = 1.0
    setting: float = 1.0
    plug_in: float = 5.0
    breaks: float = 5.0


WEIGHTS = Weights()
"""The default weights."""


@dataclass(frozen=True)
class Alternative:
    """One row, as used to choose the advice.

    need: bytes of the smallest sufficient device, or else the bytes that it reserved; None if
    neither is known. bound: whether the program may need more than its trace. excess: bytes by
    which it leaves less than ROOM. time: seconds of device calls per event, None where it failed.
    settings: of PyTorch's allocator that the program would have to change.
    price: its cost times the default's time for an event, which is linear in the assumed costs of
    device calls; of two options, it is less where the cost is.
    """

    name: str
    kind: Kind
    fits: bool
    need: int | None
    searched: bool
    time: Estimate | None
    card: str | None
    excess: float
    cost: float
    price: Estimate
    settings: int
    bound: bool


def kind(spec: str) -> Kind:
    """How a program is made to use an allocator: see `Weights`. A row may have any other name."""
    try:
        parsed = parse(spec)
    except SpecSyntaxError:
        return "plug-in"
    if parsed.inner or parsed.name not in (KEEP, "naive"):
        return "plug-in"
    if parsed.name == "naive":
        return "uncached"
    return "setting" if parsed.options.keys() - {"version"} else "default"


@dataclass(frozen=True)
class Baseline:
    """The values that all rows are compared with.

    capacity: bytes, None if unknown; shares then refer to the largest peak. given: the spec that
    the program has now, its default. by_default: seconds per event of the default, 0 if it failed.
    """

    capacity: int | None
    largest: int
    given: str
    by_default: Estimate
    weights: Weights
    shaky: Collection[str]

    @staticmethod
    def of(
        rows: Sequence[dict[str, Any]], weights: Weights, shaky: Collection[str], given: str
    ) -> Baseline:
        """The values of these rows."""
        capacity = next((row["capacity"] for row in rows if row.get("capacity")), None)
        largest = max((row.get("peak_reserved") or 1 for row in rows), default=1)
        default = next((row for row in rows if row["allocator"] == given), None)
        by_default = Estimate()
        if default and not default["failures"]:
            by_default = _device_time(default)
        return Baseline(capacity, largest, given, by_default, weights, shaky)

    def option(self, row: dict[str, Any]) -> Alternative:
        """A row of the case as an option."""
        name = str(row["allocator"])
        searched = row.get("min_capacity") is not None
        bound = bool(row.get("coverage"))
        lacks = bound and searched and self.capacity and row["min_capacity"] > self.capacity
        fits = not row["failures"] and not lacks
        need = row["min_capacity"] if searched else row.get("peak_reserved") if fits else None
        which = self._kind(name)
        time = _device_time(row) if fits else None
        price = self._price(name, need or 0, time or Estimate())
        pace = Estimate(PROGRAM_SECONDS) + self.by_default
        return Alternative(
            name=name,
            kind=which,
            fits=fits,
            need=need,
            searched=searched,
            time=time,
            card=row.get("card"),
            excess=self._excess(need or 0, name),
            cost=price.seconds / pace.seconds,
            price=price,
            settings=_settings(name) if which == "setting" else 0,
            bound=bound,
        )

    def _kind(self, name: str) -> Kind:
        """How the program is switched to an allocator from the one that it has."""
        if name == self.given:
            return "default"
        which = kind(name)
        return "setting" if which == "default" else which

    def _excess(self, need: int, name: str) -> float:
        if self.capacity is None:
            return float(need)
        room = ROOM * self.capacity
        return max(0.0, need - self.capacity + room, room if name in self.shaky else 0.0)

    def _price(self, name: str, need: int, time: Estimate) -> Estimate:
        which = self._kind(name)
        switching = {
            "default": 0.0,
            "setting": self.weights.setting * (_settings(name) if which == "setting" else 0),
            "plug-in": self.weights.plug_in + self.weights.breaks,
            "uncached": self.weights.setting + self.weights.breaks,
        }
        memory = need / (self.capacity or self.largest)
        fixed = 100 * self.weights.memory * memory + switching[which]
        slower = (time - self.by_default) * (100 * self.weights.time)
        return (Estimate(PROGRAM_SECONDS) + self.by_default) * fixed + slower


def _settings(name: str) -> int:
    """How many settings a spec of PyTorch's allocator changes."""
    options = parse(name).options
    conf = re.sub(r"\[.*?\]", "", options.get("conf", ""))  # a list is the value of one setting
    return conf.count(":") + len(options.keys() - {"conf", "version"})


def _device_time(row: dict[str, Any]) -> Estimate:
    return per_event(row) or Estimate()


@dataclass(frozen=True)
class BestOption:
    """The option to use, and the one that would be used with other costs of device calls."""

    option: Alternative | None = None
    rival: Alternative | None = None

    @staticmethod
    def of(
        options: Sequence[Alternative],
        capacity: int | None,
        kinds: Collection[Kind] = get_args(Kind),
    ) -> BestOption:
        """The best of these kinds: the default if it fits with room, else the cheapest.

        Settings that fit with room come before plug-ins, whatever these cost or leave. Of settings,
        one with more changes is best only if none with fewer would cost less with other costs of
        device calls; else it is the cheapest of those with as few changes as that one.
        Only options that leave about the most room are considered: at most CLOSE of the device less
        than any of `options`, of whatever kind; where no option of these kinds does, at most CLOSE
        less than any of them. So the best of all kinds is also the best of its own kind. Options
        that are uncached count only where no other fits.
        """
        fitting = [option for option in options if option.fits]
        fitting = [option for option in fitting if option.kind != "uncached"] or fitting
        those = [option for option in fitting if option.kind in kinds]
        if not those:
            return BestOption()
        for option in those:
            if option.kind == "default" and capacity and not option.excess:
                return BestOption(option)
        settings = [option for option in those if option.kind == "setting" and not option.excess]
        those = settings if capacity and settings else those
        near = _near(those, fitting, capacity) or _near(those, those, capacity)
        near.sort(key=lambda option: (option.cost, option.need or 0, option.name))
        best = near[0]
        own = [option for option in near if option.kind in ("default", "setting")]
        fewer = [option for option in own if option.settings < best.settings]
        simpler = [one.settings for one in fewer if one.price.may_be_less(best.price)]
        if simpler:
            best = next(option for option in fewer if option.settings == min(simpler))
        others = (option for option in near if option.settings <= best.settings)
        rivals = (option for option in others if option.price.may_be_less(best.price))
        return BestOption(best, next(rivals, None))

    @property
    def name(self) -> str | None:
        """The name of the option."""
        return self.option.name if self.option else None

    @property
    def when(self) -> str:
        """With which cost of a device call the rival would be used."""
        if self.option is None or self.rival is None:
            return ""
        return condition(self.rival.price, self.option.price)

    @property
    def doubt(self) -> str:
        """A sentence about the rival, with a space before it; empty without one."""
        if self.rival is None:
            return ""
        when = self.when or OTHER_COSTS
        return f" {self.rival.name} would be better {when}."


def _near(
    those: Sequence[Alternative], options: Sequence[Alternative], capacity: int | None
) -> list[Alternative]:
    """Those that leave at most CLOSE less room than any of `options`."""
    least = min(option.excess for option in options)
    return [one for one in those if one.excess <= least + CLOSE * (capacity or least)]
