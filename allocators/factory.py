# SPDX-License-Identifier: Apache-2.0
"""Create allocators by name or from a spec."""

from __future__ import annotations

from allocbench.allocators import _core, spec
from allocbench.allocators._core import Allocator, Device, SpecError


def names(device: Device | None = None) -> list[str]:
    """The sorted names of the strategies that can run on `device`, without the wrappers.

    Without a device, the names of the strategies that can run on any device. This excludes
    cuda_async, which needs a device with memory pools; `strategies()` includes it.
    """
    return [
        info.name
        for info in _core.strategies()
        if not (_core.unavailable(info, device) if device else info.from_driver_pool)
    ]


def make(text: str, device: Device, **options: object) -> Allocator:
    """Create an allocator: `make("bfc:allow_growth=false", device, memory_limit="8GiB")`.

    The last option of a wrapper is the allocator that it wraps: `make("limit:bytes=8GiB,of=bfc",
    device)` or `make("limit", device, bytes="8GiB", of="bfc")`. Keyword options apply to the first
    name in the text.

    Raises SpecError for an unknown name or option, with a list of the valid ones, and for a value
    that is out of range. Raises Unavailable, a SpecError, for a strategy that needs a feature that
    the device lacks.
    """
    parsed = spec.parse(text)
    texts = {name: _text(value) for name, value in options.items()}
    in_text = parsed.options.keys() | ({spec.OF} if parsed.inner else set())
    if twice := in_text & texts.keys():
        raise SpecError(f"the option {min(twice)} is given both in '{text}' and as a keyword")
    inner = spec.parse(texts.pop(spec.OF)) if spec.OF in texts else parsed.inner
    layers = spec.Spec(parsed.name, parsed.options | texts, inner).layers
    return _core.make([(layer.name, layer.options) for layer in layers], device)


def layers(text: str) -> list[tuple[str, dict[str, str]]]:
    """The wrappers, if any, and the strategy of a spec, each with its options, for the native core.

    Raises SpecError if the text is not a valid spec.
    """
    return [(layer.name, layer.options) for layer in spec.parse(text).layers]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
