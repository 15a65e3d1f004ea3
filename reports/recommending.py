# SPDX-License-Identifier: Apache-2.0
"""Which setting and which allocator to use: the advice that every command and report gives.

Pure functions over rows with the columns of `reports.results`. The question is whether the program
fits. If the default fits with room, the advice is to keep it. Otherwise, allocators that do not fit
are left out, then those that leave clearly less room than another, and the one with the lowest cost
among the rest is advised. `naive`, which calls the driver for every request, is advised only if
nothing else fits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from allocbench.base.spec import SpecSyntaxError, parse
from allocbench.reports import units
from allocbench.reports.results import records

if TYPE_CHECKING:
    import pandas as pd

Kind: TypeAlias = Literal["default", "setting", "plug-in", "uncached"]

KEEP = "caching"
"""The default: PyTorch's own allocator."""
PROGRAM_SECONDS = 10e-6
"""Assumed seconds of a program's own work per event: about one kernel launch."""
ROOM = 0.05
"""The share of a device that must stay free for a program to fit with room."""
CLOSE = 0.01
"""Two needs that differ by less than this share of a device count as equal."""


@dataclass(frozen=True)
class Weights:
    """Costs in percent of a program's running time.

    memory: for each percent of the device that is needed. time: for each percent by which the
    program takes longer, host and device time together, assuming PROGRAM_SECONDS of its own work
    per event. setting: for each setting in an environment variable. plug_in: for a package and
    lines in the program. breaks: for features that no longer work: tensors shared between processes
    with a plug-in, CUDA graphs without a cache.
    """

    memory: float = 1.0
    time: float = 1.0
    setting: float = 1.0
    plug_in: float = 5.0
    breaks: float = 5.0


WEIGHTS = Weights()
"""The default weights."""


@dataclass(frozen=True)
class Option:
    """One row, as used to choose the advice.

    need: bytes of the smallest sufficient device, or else the bytes that it reserved; None if
    neither is known. excess: bytes by which it leaves less than ROOM. seconds: host and device
    seconds per event, None where it failed.
    """

    name: str
    kind: Kind
    fits: bool
    need: int | None
    searched: bool
    seconds: float | None
    card: str | None
    excess: float
    cost: float


@dataclass(frozen=True)
class Advice:
    """The advice, and the two lines that state it.

    chosen: the spec, None if nothing fits. setting, allocator: the best of each kind that fits, or
    None. costs: by spec, for all that fit. unfit: why nothing was chosen, in words.
    """

    chosen: str | None
    setting: str | None
    allocator: str | None
    lines: tuple[str, str]
    costs: dict[str, float]
    unfit: str = ""

    @property
    def keeps(self) -> bool:
        """Whether the advice is to change nothing."""
        return self.chosen is not None and kind(self.chosen) == "default"


LOSSES: dict[Kind, str] = {
    "plug-in": "a package and lines in the program; tensors cannot be shared with other processes",
    "uncached": "a driver call for each request; CUDA graphs cannot be captured",
}
"""What a program loses with each way of switching, in words."""


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


def advise(
    rows: pd.DataFrame,
    *,
    device: str = "",
    shaky: Collection[str] = (),
    weights: Weights = WEIGHTS,
    device_factor: float = 1.0,
) -> Advice:
    """Choose among the rows of one workload on one device.

    device: its name in the lines; default: as in the rows. shaky: specs that fail when the program
    works in another order; they count as having no room. device_factor: multiplies the device
    seconds.
    """
    candidates = [row for row in records(rows) if row["candidate"] and row["failures"] is not None]
    case = _Case.of(candidates, weights, device_factor, shaky)
    options = [case.option(row) for row in candidates]
    default = next((option for option in options if option.kind == "default"), None)
    name = device or next((str(row["device"]) for row in candidates), "the device")
    capacity = case.capacity
    setting = _best(
        [option for option in options if option.kind in ("default", "setting")], capacity
    )
    plugged = _best([option for option in options if option.kind == "plug-in"], capacity)
    uncached = _best([option for option in options if option.kind == "uncached"], capacity)
    chosen = (
        _best([option for option in options if option.kind != "uncached"], capacity) or uncached
    )
    other = plugged or (uncached if setting is None else None)
    load = max((int(row.get("max_load") or 0) for row in candidates), default=0)
    unfit = "" if chosen else _unfit(load, capacity, name)
    second = _line("allocator", other, default, options, capacity, name, unfit)
    if other and chosen is default is not None and _needs_more(other, default):
        second = (
            f"Best allocator: keep the default; the next best, {other.name}, completes on"
            f" {units.size(other.need or 0)}{_against(other, default)}{_time(other, default)}."
        )
    lines = _line("setting", setting, default, options, capacity, name, unfit), second
    return Advice(
        chosen.name if chosen else None,
        setting.name if setting else None,
        other.name if other else None,
        lines,
        {option.name: option.cost for option in options if option.fits},
        unfit,
    )


def consequence(
    need: int,
    fits: bool,
    capacity: int | None,
    device: str,
    default: tuple[int | None, bool] | None,
) -> str:
    """Whether a program fits a device, and whether it does by default, in words.

    need: bytes. default: need and fits of the default, None if it should not be mentioned.
    """
    if capacity is None:
        return ""
    if not fits:
        return f"it does not fit {device}"
    words = f"it fits {device} with {units.size(max(0, capacity - need))} to spare"
    if default is None:
        return words
    least, default_fits = default
    if not default_fits:
        return f"{words}; the default does not fit"
    if least is None:
        return f"{words}; the default fits too"
    return f"{words}; the default leaves {units.size(max(0, capacity - least))}"


@dataclass(frozen=True)
class _Case:
    """The values that all rows are compared with.

    capacity: bytes, None if unknown; shares then refer to the largest peak. by_default: seconds per
    event of the default, 0 if it failed.
    """

    capacity: int | None
    largest: int
    by_default: float
    weights: Weights
    device_factor: float
    shaky: Collection[str]

    @staticmethod
    def of(
        rows: Sequence[dict[str, Any]],
        weights: Weights,
        device_factor: float,
        shaky: Collection[str],
    ) -> _Case:
        capacity = next((row["capacity"] for row in rows if row.get("capacity")), None)
        largest = max((row.get("peak_reserved") or 1 for row in rows), default=1)
        by_default = next(
            (
                _seconds(row, device_factor)
                for row in rows
                if kind(row["allocator"]) == "default" and not row["failures"]
            ),
            0.0,
        )
        return _Case(capacity, largest, by_default, weights, device_factor, shaky)

    def option(self, row: dict[str, Any]) -> Option:
        name, fits = str(row["allocator"]), not row["failures"]
        searched = row.get("min_capacity") is not None
        need = row["min_capacity"] if searched else row.get("peak_reserved") if fits else None
        seconds = _seconds(row, self.device_factor) if fits else None
        return Option(
            name=name,
            kind=kind(name),
            fits=fits,
            need=need,
            searched=searched,
            seconds=seconds,
            card=row.get("card"),
            excess=self._excess(need or 0, name),
            cost=self._cost(name, need or 0, seconds or 0.0),
        )

    def _excess(self, need: int, name: str) -> float:
        if self.capacity is None:
            return float(need)
        room = ROOM * self.capacity
        return max(0.0, need - self.capacity + room, room if name in self.shaky else 0.0)

    def _cost(self, name: str, need: int, seconds: float) -> float:
        which = kind(name)
        switching = {
            "default": 0.0,
            "setting": self.weights.setting * (_settings(name) if which == "setting" else 0),
            "plug-in": self.weights.plug_in + self.weights.breaks,
            "uncached": self.weights.setting + self.weights.breaks,
        }
        memory = need / (self.capacity or self.largest)
        slower = (seconds - self.by_default) / (PROGRAM_SECONDS + self.by_default)
        shares = self.weights.memory * memory + self.weights.time * slower
        return 100 * shares + switching[which]


def _settings(name: str) -> int:
    """How many settings a spec of PyTorch's allocator changes."""
    options = parse(name).options
    conf = re.sub(r"\[.*?\]", "", options.get("conf", ""))  # a list is the value of one setting
    return conf.count(":") + len(options.keys() - {"conf", "version"})


def _seconds(row: dict[str, Any], device_factor: float) -> float:
    host, device = row.get("seconds_per_event_cold"), row.get("device_seconds_per_event")
    return (host or 0.0) + device_factor * (device or 0.0)


def _best(options: Sequence[Option], capacity: int | None) -> Option | None:
    """The option to use: the default if it fits with room, else one with the most room."""
    fitting = [option for option in options if option.fits]
    if not fitting:
        return None
    for option in fitting:
        if option.kind == "default" and capacity and not option.excess:
            return option
    least = min(option.excess for option in fitting)
    close = CLOSE * (capacity or least)
    near = [option for option in fitting if option.excess <= least + close]
    return min(near, key=lambda option: (option.cost, option.need or 0, option.name))


def _line(
    what: Literal["setting", "allocator"],
    best: Option | None,
    default: Option | None,
    options: Sequence[Option],
    capacity: int | None,
    device: str,
    unfit: str,
) -> str:
    head = f"Best {what}: "
    if best is None:
        return head + _none(what, options, unfit or f"nothing that was tried fits {device}")
    if best.need is None:
        return f"{head}{best.name}"
    verb = "completes on" if best.searched else "reserves"
    if best.kind == "default":
        words = f"keep the default, which {verb} {units.size(best.need)}"
        return f"{head}{words}; {_ends(best, None, capacity, device)}."
    words = f"{best.name} {verb} {units.size(best.need)}{_against(best, default)}"
    return f"{head}{words}{_time(best, default)}; {_ends(best, default, capacity, device)}."


def _unfit(load: int, capacity: int | None, device: str) -> str:
    """Why nothing fits a device: no allocator can, or no allocator that was tried does."""
    if capacity and load > capacity:
        return f"the load of {units.size(load)} exceeds {device}"
    return f"nothing that was tried fits {device}"


def _needs_more(option: Option, default: Option) -> bool:
    return option.searched and (option.need or 0) > (default.need or 0) > 0


def _none(what: str, options: Sequence[Option], words: str) -> str:
    kinds = ("default", "setting") if what == "setting" else ("plug-in", "uncached")
    those = [option for option in options if option.kind in kinds]
    if not those:
        return "none was tried."
    if any(option.fits for option in those):
        return "none is needed; the only one that was tried makes a driver call for each request."
    needs = [option for option in those if option.need is not None]
    if not needs:
        return f"{words}."
    least = min(needs, key=lambda option: option.need or 0)
    card = f", smallest card {least.card}" if least.card else ""
    return f"{words}; {least.name} needs the least, {units.size(least.need or 0)}{card}."


def _against(best: Option, default: Option | None) -> str:
    if default is None or not default.need or best.need is None:
        return ""
    share = 1 - best.need / default.need
    size = units.size(default.need)
    if abs(share) < 0.0005:
        return ", the same as the default"
    less = f"{units.percent(abs(share))} {'less' if share > 0 else 'more'}"
    return f", {less} than the default ({size})"


def _time(best: Option, default: Option | None) -> str:
    if best.seconds is None:
        return ""
    words = f", host and device time {units.seconds(best.seconds)} per event"
    if default is None or default.seconds is None:
        return words
    return f"{words} (the default {units.seconds(default.seconds)})"


def _ends(best: Option, default: Option | None, capacity: int | None, device: str) -> str:
    other = None if default is None else (default.need, default.fits)
    parts = [consequence(best.need or 0, best.fits, capacity, device, other)]
    if best.card:
        where = (
            ""
            if default is None or not default.card
            else (
                ", the same as for the default"
                if default.card == best.card
                else f" (the default: {default.card})"
            )
        )
        parts.append(f"smallest card {best.card}{where}")
    return "; ".join(filter(None, parts)) or "the device's capacity is not known"
