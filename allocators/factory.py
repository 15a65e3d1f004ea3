# SPDX-License-Identifier: Apache-2.0
"""Allocators by name or by spec."""

from __future__ import annotations

from allocbench.allocators import _core, spec
from allocbench.allocators._core import Allocator, Device, SpecError


def names(device: Device | None = None) -> list[str]:
    """The names of the strategies that can work on `device`, sorted; wrappers are none.

    Without a device, of those that can work on any: cuda_async, which needs a device with memory
    pools of its own, is not among them. `strategies()` has them all.
    """
    return [
        info.name
        for info in _core.strategies()
        if not (_core.unavailable(info, device) if device else info.from_pool)
    ]


def make(text: str, device: Device, **options: object) -> Allocator:
    """An allocator on `device`: `make("bfc:allow_growth=false", device, memory_limit="8GiB")`.

    A wrapper takes the allocator inside it as its last option: `make("limit:bytes=8GiB,of=bfc",
    device)`, `make("limit", device, bytes="8GiB", of="bfc")`. Options beside the text belong to
    the name that it begins with.

    Raises SpecError for a name or an option that does not exist, listing the valid ones, and for
    a value out of its range; Unavailable, a SpecError, for a strategy that needs what the device
    does not have.
    """
    parsed = spec.parse(text)
    given = {name: _text(value) for name, value in options.items()}
    in_text = parsed.options.keys() | ({spec.OF} if parsed.inner else set())
    if twice := in_text & given.keys():
        raise SpecError(f"the option {min(twice)} is given in '{text}' and beside it")
    inner = spec.parse(given.pop(spec.OF)) if spec.OF in given else parsed.inner
    layers = spec.Spec(parsed.name, parsed.options | given, inner).layers
    return _core.make([(layer.name, layer.options) for layer in layers], device)


def layers(text: str) -> list[tuple[str, dict[str, str]]]:
    """The wrappers, if any, and the strategy of a spec, each with its options, as the core wants.

    Raises SpecError when the text is no spec.
    """
    return [(layer.name, layer.options) for layer in spec.parse(text).layers]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
