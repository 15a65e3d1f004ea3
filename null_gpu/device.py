# SPDX-License-Identifier: Apache-2.0
"""`null:h100,memory=70GiB,count=2` -> the cards that a program sees.

Options also change what NVIDIA's libraries ask PyTorch for: the table is `workspaces.json`, and the
native library (`libraries/workspaces.hpp`) applies it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from allocbench.allocators import SpecError
from allocbench.allocators.devices import parse_bytes
from allocbench.base import cards
from allocbench.base.cards import Card, Compute
from allocbench.base.spec import SpecSyntaxError, name_of, parse


@dataclass(frozen=True)
class Rule:
    """How many bytes a library asks for.

    rule: its name, which is also that of the option of `null:CARD`. of: the requests that it is
    about. default: a number of bytes, or the name of an assumption. assumptions: formulas by name.
    source: of the default and of the formulas.
    """

    rule: str
    library: str
    of: str
    default: str
    assumptions: Mapping[str, str]
    source: str

    def read(self, text: str) -> str:
        """The value of the option: bytes as digits or the name of a formula; raises SpecError."""
        if text in self.assumptions:
            return text
        try:
            return str(parse_bytes(text))
        except SpecError as error:
            formulas = "".join(f" or {name}" for name in self.assumptions)
            raise SpecError(f"{self.rule}={text}: write a number of bytes{formulas}") from error


@cache
def workspace_rules() -> Mapping[str, Rule]:
    """All rules by name, in the order of the native library."""
    text = files("allocbench.null_gpu").joinpath("workspaces.json").read_text(encoding="utf-8")
    return {row["rule"]: Rule(**row) for row in json.loads(text)}


KIND = "null"
LATE = "late"
"""The value of the option `events` with which blocks of other streams are held."""
MOST_DEVICES = 16
"""The native library has addresses for this many."""
_OPTIONS = ["card", "memory", "context", "count", "rank", "world", "addresses", "events", "fail"]
FAILING = files("allocbench.null_gpu").joinpath("failing.txt").read_text(encoding="utf-8").split()
"""CUDA's functions that the option `fail` can make fail."""


@dataclass(frozen=True)
class NullDevice:
    """A machine without GPUs that appears to have some identical ones. Bytes.

    memory: what the driver reports of each. context: what one process's CUDA context uses. rank,
    world: what a program sees as its rank and world size; None: unchanged. addresses: "down" if
    later allocations are below earlier ones, otherwise "up". events: "late" if an event is ready
    only when the program next waits for the card, otherwise "ready". workspaces: by rule of
    `workspaces.json`, where it is not the default. fail: calls that return an error,
    "FUNCTION:NUMBER:ERROR", separated by commas.
    """

    card: Card
    compute: Compute
    memory: int
    context: int
    count: int = 1
    rank: int | None = None
    world: int | None = None
    addresses: str = "down"
    events: str = "ready"
    workspaces: Mapping[str, str] = field(default_factory=dict)
    fail: str = ""

    @property
    def name(self) -> str:
        """Its name in provenance: "null:rtx4090", with the overridden options."""
        defaults = {"memory": self.card.usable, "context": self.card.context}
        defaults |= {name: getattr(type(self), name) for name in ("addresses", "events", "fail")}
        given = {option: getattr(self, option) for option in defaults}
        changed = {option: text for option, text in given.items() if text != defaults[option]}
        name = f"{KIND}:{self.card.slug}"
        name += "".join(f",{rule}={text}" for rule, text in (changed | {**self.workspaces}).items())
        if self.world is not None:
            name += f",rank={self.rank},world={self.world}"
        return name

    def settings(self) -> dict[str, str | int]:
        """The variables for the native library."""
        compute = self.compute
        return {
            "name": compute.product,
            "compute_capability": compute.capability,
            "multiprocessors": compute.multiprocessors,
            "shared_per_multiprocessor": compute.shared_per_multiprocessor,
            "shared_per_block": compute.shared_per_block,
            "threads_per_multiprocessor": compute.threads_per_multiprocessor,
            "blocks_per_multiprocessor": compute.blocks_per_multiprocessor,
            "l2_bytes": compute.l2,
            "bus_bits": compute.bus_bits,
            "clock_khz": compute.clock_mhz * 1000,
            "memory_clock_khz": compute.memory_clock_mhz * 1000,
            "memory": self.memory,
            "context": self.context,
            "count": self.count,
            "addresses_ascend": int(self.addresses == "up"),
            "late_events": int(self.events == LATE),
            "fail": self.fail,
            **{name: rule.default for name, rule in workspace_rules().items()},
            **self.workspaces,
        }


def is_null(text: str) -> bool:
    """Whether a device spec names a null GPU."""
    return name_of(text) == KIND


def has_own_option(text: str) -> bool:
    """Whether a card's options are those of a null GPU, and not of a simulated device."""
    own = {*_OPTIONS, *workspace_rules()} - {"card", "context", "addresses"}
    return any(part.partition("=")[0] in own for part in text.split(",")[1:])


def read(text: str) -> NullDevice:
    """The device of a spec; raises SpecError for an unknown card or option."""
    try:
        spec = parse(text, first="card")
    except SpecSyntaxError as error:
        raise SpecError(str(error)) from error
    if spec.name != KIND:
        raise SpecError(f"'{text}': the only device here is {KIND}:CARD, such as {KIND}:h100")
    valid = (*_OPTIONS, *workspace_rules())
    if unknown := [option for option in spec.options if option not in valid]:
        raise SpecError(f"{KIND} has no option {unknown[0]}; its options: {', '.join(valid[1:])}")
    card = _card(spec.options.get("card", ""))
    assert card.compute is not None
    options = spec.options
    return _checked(
        NullDevice(
            card,
            card.compute,
            memory=parse_bytes(options.get("memory", card.usable)),
            context=parse_bytes(options.get("context", card.context)),
            count=_whole("count", options, 1) or 1,
            rank=_whole("rank", options, 0),
            world=_whole("world", options, 1),
            addresses=options.get("addresses", "down"),
            events=options.get("events", "ready"),
            workspaces=_workspaces(options),
            fail=_failures(options.get("fail", "")),
        )
    )


def _checked(device: NullDevice) -> NullDevice:
    if device.context >= device.memory:
        raise SpecError(
            f"{device.card.name}: context={device.context} leaves nothing of memory={device.memory}"
        )
    if (given := device.addresses) not in ("down", "up"):
        raise SpecError(f"addresses={given} must be down, as on most Linux systems, or up")
    if (given := device.events) not in ("ready", LATE):
        raise SpecError(f"events={given} must be ready, as soon as they are recorded, or late")
    if device.count > MOST_DEVICES:
        raise SpecError(f"count={device.count}: at most {MOST_DEVICES} null GPUs")
    if (device.rank is None) != (device.world is None):
        raise SpecError("rank and world must be given together: rank=3,world=64")
    if device.rank is not None and device.world is not None and device.rank >= device.world:
        raise SpecError(f"rank={device.rank} is not below world={device.world}")
    return device


def _card(name: str) -> Card:
    known = [card for card in cards.cards() if card.compute is not None]
    matching = [card for card in cards.find(name) if card in known]
    if not matching:
        suggested = cards.suggestion(name, known)
        raise SpecError(f"'{name}' is not a card that the null GPU supports; {suggested}")
    card = cards.meant(matching)
    if card is None:
        several = ", ".join(card.slug for card in matching)
        raise SpecError(f"'{name}' is the name of several cards: {several}")
    return card


def _workspaces(options: Mapping[str, str]) -> dict[str, str]:
    """By rule, what an option says that is not the default; raises SpecError."""
    changed = dict[str, str]()
    for name, rule in workspace_rules().items():
        text = rule.read(options.get(name, rule.default))
        if text != rule.default:
            changed[name] = text
    return changed


def _failures(text: str) -> str:
    """The option `fail`, checked; raises SpecError."""
    for call in filter(None, text.split(",")):
        function, *numbers = call.split(":")
        if len(numbers) not in (1, 2) or not all(number.isdecimal() for number in numbers):
            raise SpecError(f"fail={call}: write FUNCTION:NUMBER or FUNCTION:NUMBER:ERROR")
        if function not in FAILING:
            known = ", ".join(get_close_matches(function, FAILING) or FAILING)
            raise SpecError(f"fail={call}: {function} cannot be made to fail; these can: {known}")
        if numbers[1:] and int(numbers[1]) == 0:
            raise SpecError(f"fail={call}: 0 is not an error of CUDA")
    return text


def _whole(option: str, options: Mapping[str, str], least: int) -> int | None:
    if option not in options:
        return None
    text = options[option]
    if not text.isdecimal() or int(text) < least:
        raise SpecError(f"{option}={text} is not a whole number of at least {least}")
    return int(text)
