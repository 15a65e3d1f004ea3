# SPDX-License-Identifier: Apache-2.0
"""Workloads generated on demand from a name and options: `name:option=value,option=value`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from allocbench.workloads.events import Events
from allocbench.workloads.vocabulary import Provenance, TraceError

if TYPE_CHECKING:
    from allocbench.workloads.trace import Trace

Value = int | float | str
Kind = Literal["count", "bytes", "number", "choice"]
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MOST = {"count": 10**9, "bytes": 1 << 50, "number": 10**18}


@dataclass(frozen=True)
class Option:
    """An option of a generator.

    kind: "count" (an integer), "bytes" (may be written as 4KiB), "number" or "choice".
    least, most: the smallest and the largest value, for all kinds but "choice".
    """

    name: str
    kind: Kind
    default: Value
    help: str
    least: float = 1
    most: float | None = None
    choices: tuple[str, ...] = ()

    def read(self, given: Value) -> Value:
        """Convert a value or its text. Raises ValueError with the rule that it breaks."""
        if self.kind == "choice":
            if given in self.choices:
                return given
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        number, most = self._number(str(given)), self.most or _MOST[self.kind]
        if number is None or not self.least <= number <= most:
            what = {"count": "a whole number", "bytes": "bytes, such as 4096 or 4KiB,"}
            expected = what.get(self.kind, "a number")
            raise ValueError(f"must be {expected} from {self.least:,} to {most:,}")
        return number

    def written(self, value: Value) -> str:
        """The value as written in a spec: bytes in the largest exact unit."""
        if self.kind == "bytes" and value:
            unit = next(unit for unit in reversed(_UNITS) if int(value) % _UNITS[unit] == 0)
            return f"{int(value) // _UNITS[unit]}{unit}"
        return str(value)

    def _number(self, text: str) -> int | float | None:
        if self.kind == "number":
            match = re.fullmatch(r"[0-9]*\.?[0-9]+(e[+-]?[0-9]{1,2})?", text)
            return float(text) if match else None
        if self.kind == "count":
            return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
        match = re.fullmatch(r"([0-9]{1,18})(\.[0-9]{1,18})?(|[KMGT]iB)", text)
        if not match or (match[2] and not match[3]):
            return None
        return round(Fraction(match[1] + (match[2] or "")) * _UNITS[match[3]])


def option(kind: Kind, default: Value, help_: str, **limits: Any) -> Any:
    """A parameter of a function, or a field of a dataclass, that an option with its name gives."""
    return Option("", kind, default, help_, **limits)


SEED = option("count", 0, "seed of the random choices", least=0)


def options_of(made: Callable[..., object]) -> tuple[Option, ...]:
    """The options of a function or a dataclass."""
    given = inspect.signature(made).parameters.values()
    return tuple(
        replace(one.default, name=one.name) for one in given if one.default is not one.empty
    )


def with_defaults(options: Iterable[Option], defaults: Mapping[str, Value]) -> tuple[Option, ...]:
    """The options with other defaults."""
    return tuple(replace(one, default=defaults.get(one.name, one.default)) for one in options)


def settle(options: Sequence[Option], given: Mapping[str, Value]) -> dict[str, Any]:
    """A value for every option: the given one, or the default.

    Raises TraceError for an unknown option or an invalid value.
    """
    valid = {option.name: option for option in options}
    values: dict[str, Any] = {option.name: option.default for option in options}
    for name, value in given.items():
        if name not in valid:
            listed = ", ".join(valid)
            raise TraceError(f"no option '{name}'; valid options: {listed}")
        try:
            values[name] = valid[name].read(value)
        except ValueError as error:
            raise TraceError(f"{name}={value} {error}") from error
    return values


@dataclass(frozen=True)
class Generator:
    """A workload generated on demand. The same options always give the same trace.

    source: where the idea comes from. write: writes the events, given every option by name, and
    returns additional provenance.
    """

    name: str
    kind: str
    summary: str
    source: str
    options: tuple[Option, ...]
    write: Callable[..., Mapping[str, Any] | None]

    def trace(self, given: Mapping[str, Value]) -> Trace:
        """The trace for these options. Raises TraceError for invalid ones.

        Its name is the spec that creates it, with the options that differ from their defaults.
        """
        values = settle(self.options, given)
        changed = [
            f"{option.name}={option.written(value)}"
            for option in self.options
            if (value := values[option.name]) != option.default
        ]
        name = self.name + (":" + ",".join(changed) if changed else "")
        events = Events()
        said = self.write(events, **values) or {}
        provenance = Provenance(
            name=name,
            kind=self.kind,
            source=self.source,
            seed=values.get("seed"),
            extra={"options": {key: value for key, value in values.items() if value != ""}, **said},
        )
        return events.trace(provenance)
