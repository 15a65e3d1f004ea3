# SPDX-License-Identifier: Apache-2.0
"""Workloads made on demand from a name and options, written `name:option=value,option=value`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from allocbench.workloads.events import Events
from allocbench.workloads.vocabulary import Provenance, TraceError

if TYPE_CHECKING:
    from allocbench.workloads.trace import Trace

Value = int | float | str
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MOST = {"count": 10**9, "bytes": 1 << 50, "number": 10**18}


@dataclass(frozen=True)
class Option:
    """What a user may choose.

    kind: a whole "count"; "bytes", which may be written as 4KiB; a "number"; a "choice" of some.
    least, most: the smallest and the largest value of one that is no choice.
    """

    name: str
    kind: Literal["count", "bytes", "number", "choice"]
    default: Value
    help: str
    least: float = 1
    most: float | None = None
    choices: tuple[str, ...] = ()

    def read(self, given: Value) -> Value:
        """The value, from itself or its text; raises ValueError saying what it must be."""
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
        """The value as it is written in a spec: bytes in the largest unit that is exact."""
        if self.kind == "bytes" and value:
            unit = next(unit for unit in reversed(_UNITS) if int(value) % _UNITS[unit] == 0)
            return f"{int(value) // _UNITS[unit]}{unit}"
        return str(value)

    def _number(self, text: str) -> int | float | None:
        if self.kind == "number":
            found = re.fullmatch(r"[0-9]*\.?[0-9]+(e[+-]?[0-9]{1,2})?", text)
            return float(text) if found else None
        if self.kind == "count":
            return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
        found = re.fullmatch(r"([0-9]{1,18})(\.[0-9]{1,18})?(|[KMGT]iB)", text)
        if not found or (found[2] and not found[3]):
            return None
        return round(Fraction(found[1] + (found[2] or "")) * _UNITS[found[3]])


SEED = Option("seed", "count", 0, "of every random choice", least=0)


def settle(options: Sequence[Option], given: Mapping[str, Value]) -> dict[str, Any]:
    """A value for every option: the one given, else the default.

    Raises TraceError for an unknown option or a value it cannot have.
    """
    valid = {option.name: option for option in options}
    found: dict[str, Any] = {option.name: option.default for option in options}
    for name, value in given.items():
        if name not in valid:
            listed = ", ".join(valid)
            raise TraceError(f"no option '{name}'; valid options: {listed}")
        try:
            found[name] = valid[name].read(value)
        except ValueError as error:
            raise TraceError(f"{name}={value} {error}") from error
    return found


@dataclass(frozen=True)
class Generator:
    """A workload made on demand; the same options make the same trace.

    source: where the idea comes from. write: writes the events, given every option by name, and
    returns what else the provenance is to say.
    """

    name: str
    kind: str
    summary: str
    source: str
    options: tuple[Option, ...]
    write: Callable[..., Mapping[str, Any] | None]

    def trace(self, given: Mapping[str, Value]) -> Trace:
        """The trace of some options; raises TraceError for those that cannot be.

        Its name is the spec that makes it: the options that differ from their defaults.
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
            seed=values.get(SEED.name),
            extra={"options": {key: value for key, value in values.items() if value != ""}, **said},
        )
        return events.trace(provenance)
