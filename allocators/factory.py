# SPDX-License-Identifier: Apache-2.0
"""Allocators by name or by spec."""

from __future__ import annotations

from allocators import _core, spec
from allocators._core import Allocator, Device, SpecError


def names() -> list[str]:
    """The names of all strategies, sorted."""
    return [info.name for info in _core.strategies()]


def make(text: str, device: Device, **options: object) -> Allocator:
    """An allocator on `device`: `make("bfc:allow_growth=false", device, memory_limit="8GiB")`.

    Raises SpecError for a name or an option that does not exist, listing the valid ones, and for
    a value out of its range.
    """
    parsed = spec.parse(text)
    given = {name: _text(value) for name, value in options.items()}
    if twice := parsed.options.keys() & given.keys():
        raise SpecError(f"the option {min(twice)} is given in '{text}' and beside it")
    return _core.make(parsed.name, device, parsed.options | given)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
