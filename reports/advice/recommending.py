# SPDX-License-Identifier: Apache-2.0
"""Which setting and which allocator to use: the advice that every command and report gives.

Pure functions over rows with the columns of `reports.rows`; `questions.best` makes the rows, the
same for all commands. The question is whether the program fits. If the default fits with room, the
advice is to keep it. Otherwise, allocators that do not fit are left out, then those that leave
clearly less room than another, and the one with the lowest cost among the rest is advised. `naive`,
which calls the driver for every request, is advised only if nothing else fits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from allocbench.base import units
from allocbench.reports.advice.choosing import (
    CLEAR,
    KEEP,
    WEIGHTS,
    Alternative,
    Baseline,
    BestOption,
    Kind,
    Weights,
)
from allocbench.reports.advice.coverage import hidden, needs
from allocbench.reports.rows.results import records

if TYPE_CHECKING:
    import pandas as pd


DEFAULT, RECORDED = "the default", "the recorded configuration"
GIVEN = "the given configuration"
"""What a program has now, in words."""


@dataclass(frozen=True)
class Advice:
    """The advice, and the two lines that state it.

    chosen: the spec, None if nothing fits. setting: the best of PyTorch's own allocator, None if
    none fits. allocator: that of the choice: KEEP for a setting, None if nothing fits. keeps:
    whether the choice is to change nothing. costs: by spec, for all that fit. rival: the spec that
    would be chosen with other costs of device calls within their assumed ranges, or None. when:
    with which costs, in words; empty if no single cost decides. unfit: why nothing was chosen, in
    words. now: what the lines call what the program has now.
    """

    chosen: str | None
    setting: str | None
    allocator: str | None
    lines: tuple[str, str]
    keeps: bool
    costs: dict[str, float]
    unfit: str = ""
    rival: str | None = None
    when: str = ""
    now: str = DEFAULT

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns of `reports.rows` with which rows keep it."""
        return {
            "recommended": self.chosen,
            "best_setting": self.setting,
            "best_allocator": self.allocator,
            "setting_advice": self.lines[0],
            "allocator_advice": self.lines[1],
        }


_SAME = 0.0005
"""Needs that differ by a smaller share are called the same."""
_SETTINGS: tuple[Kind, ...] = ("default", "setting")
_OTHERS: tuple[Kind, ...] = ("plug-in", "uncached")
LOSSES: dict[Kind, str] = {
    "plug-in": "a package and lines in the program; tensors cannot be shared with other processes",
    "uncached": "a driver call for each request; CUDA graphs cannot be captured",
}
"""What a program loses with each way of switching, in words."""


def advise(
    rows: pd.DataFrame,
    *,
    device: str = "",
    given: str = KEEP,
    shaky: Collection[str] = (),
    weights: Weights = WEIGHTS,
    now: str = DEFAULT,
    held: int = 0,
) -> Advice:
    """Choose among the rows of one workload on one device.

    device: its name in the lines; default: as in the rows. given: the spec that the program has
    now; now: what the lines call it. held: bytes that were reserved before the recording began.
    shaky: specs that fail when the program works in another order; they count as having no room.
    """
    candidates = [row for row in records(rows) if row["candidate"] and row["failures"] is not None]
    case = Baseline.of(candidates, weights, shaky, given)
    options = [case.option(row) for row in candidates]
    default = next((option for option in options if option.kind == "default"), None)
    name = device or next((str(row["device"]) for row in candidates), "the device")
    best = partial(BestOption.of, options, case.capacity)
    chosen, setting, other = best(), best(_SETTINGS), best(_OTHERS)
    load = max((int(row.get("max_load") or 0) for row in candidates), default=0)
    unfit = "" if chosen.option else _unfit(load, held, case.capacity, name)
    own = chosen.option is not None and chosen.option.kind in _SETTINGS
    write = partial(
        _line,
        default=default,
        options=options,
        capacity=case.capacity,
        device=name,
        unfit=unfit,
        keep="keep the default" if own else "the default",
    )
    first = write("setting", setting)
    if default is not None and chosen.option is default:
        first += _smallest_setting(options, default)
    second = _own(chosen, other, default) if own else write("allocator", other)
    return Advice(
        chosen.name,
        setting.name,
        KEEP if own else chosen.name,
        (first.replace(DEFAULT, now), second.replace(DEFAULT, now)),
        chosen.option is not None and chosen.option is default,
        {option.name: option.cost for option in options if option.fits},
        unfit,
        chosen.rival.name if chosen.rival else None,
        chosen.when,
        now,
    )


def consequence(
    need: int,
    fits: bool,
    capacity: int | None,
    device: str,
    default: tuple[int | None, bool] | None,
    bound: bool = False,
) -> str:
    """Whether a program fits a device, and whether it does by default: "fits X with Y to spare".

    Empty if the capacity is not known. need: bytes. default: need and fits of the default, None if
    it should not be mentioned. bound: whether the program may need more.
    """
    if capacity is None:
        return ""
    if not fits:
        return f"does not fit {device}"
    left = units.size(max(0, capacity - need))
    words = f"leaves at most {left} on {device}" if bound else f"fits {device} with {left} to spare"
    if default is None:
        return words
    least, default_fits = default
    if not default_fits:
        return f"{words}; the default does not fit"
    if least is None:
        return f"{words}; the default fits too"
    return f"{words}; the default leaves {units.size(max(0, capacity - least))}"


def _line(
    what: Literal["setting", "allocator"],
    found: BestOption,
    default: Alternative | None,
    options: Sequence[Alternative],
    capacity: int | None,
    device: str,
    unfit: str,
    keep: str,
) -> str:
    head, best = f"Best {what}: ", found.option
    if best is None:
        return head + _none(what, options, unfit or f"nothing that was tried fits {device}")
    if best.need is None:
        return f"{head}{best.name}"
    keeps = best.kind == "default"
    other = None if keeps else default
    fits = consequence(
        best.need,
        best.fits,
        capacity,
        device,
        None if other is None else (other.need, other.fits),
        best.bound,
    )
    words = _need(best, other)
    if fits:
        words += f"{',' if _against(best, other) else ''} and {fits}"
    name = keep if keeps else best.name
    time = "" if keeps else _time(best, other)
    unknown = "" if fits or best.card else " The capacity of the device is not known."
    return f"{head}{name}. It {words}.{unknown}{_card(best, other)}{time}{found.doubt}"


def _own(chosen: BestOption, other: BestOption, default: Alternative | None) -> str:
    """The second line where PyTorch's own allocator is used, and the best of the others."""
    kept = "keep the default" if chosen.option is default else "PyTorch's own, with this setting"
    following, best = other.option, chosen.option
    if following is None or not following.need or best is None or not best.need:
        return f"Best allocator: {kept}."
    share = 1 - following.need / best.need
    less = f"{units.percent(abs(share))} {'less' if share > 0 else 'more'}"
    than = "the same" if abs(share) < _SAME else less
    need = _need(following, None)
    return f"Best allocator: {kept}. The best of the others, {following.name}, {need}, {than}."


def _smallest_setting(options: Sequence[Alternative], default: Alternative) -> str:
    """The setting that needs the least, if that is clearly less than the default needs."""
    fitting = [one for one in options if one.kind == "setting" and one.fits and one.need]
    least = min(fitting, key=lambda one: one.need or 0, default=None)
    if least is None or not default.need or (least.need or 0) > (1 - CLEAR) * default.need:
        return ""
    return f" {least.name} {_need(least, default)}, but the default is enough."


def _unfit(load: int, held: int, capacity: int | None, device: str) -> str:
    """Why nothing fits a device: no allocator can, none that was tried does, or it is not known."""
    if capacity and load > capacity:
        return f"{units.size(load)} are in use at once, more than {device} has"
    if capacity and held > capacity:
        return f"it is not known what fits {device}: {hidden(held)}"
    return f"nothing that was tried fits {device}"


def _none(what: str, options: Sequence[Alternative], words: str) -> str:
    kinds = _SETTINGS if what == "setting" else _OTHERS
    those = [option for option in options if option.kind in kinds]
    if not those:
        return "caching was not compared." if what == "setting" else "only caching was compared."
    if any(option.fits for option in those):
        return "none is needed; the only one that was tried makes a driver call for each request."
    least = min((one for one in those if one.need), key=lambda one: one.need or 0, default=None)
    if least is None:
        return f"none, because {words}."
    card = f": the smallest card is the {least.card}" if least.card else ""
    need = f"{'at least ' * least.bound}{units.size(least.need or 0)}{card}"
    return f"none, because {words}. Of what was tried, {least.name} needs the least, {need}."


def _need(best: Alternative, default: Alternative | None) -> str:
    need = best.need or 0
    words = needs(need, best.bound) if best.searched else f"reserves {units.size(need)}"
    return f"{words}{_against(best, default)}"


def _against(best: Alternative, default: Alternative | None) -> str:
    if default is None or not default.need or best.need is None:
        return ""
    share = 1 - best.need / default.need
    size = units.size(default.need)
    if abs(share) < _SAME:
        return ", the same as the default"
    if units.size(best.need) == size:
        return ", about as much as the default"
    less = f"{units.percent(abs(share))} {'less' if share > 0 else 'more'}"
    return f", {less} than the default ({size})"


def _time(best: Alternative, default: Alternative | None) -> str:
    """That of device calls: PyTorch's host time is not known."""
    if best.time is None:
        return ""
    by_default = default.time if default else None
    compared = f" (the default: {by_default.text})" if by_default is not None else ""
    return f" Device time: {best.time.text} per event{compared}."


def _card(best: Alternative, default: Alternative | None) -> str:
    if not best.card:
        return ""
    by_default = "" if default is None or not default.card else f" (the default: {default.card})"
    if default is not None and default.card == best.card:
        by_default = ", as for the default"
    return f" Smallest card: {best.card}{by_default}."
