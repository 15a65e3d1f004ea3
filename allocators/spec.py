# SPDX-License-Identifier: Apache-2.0
"""Specs of allocators and devices, in the grammar of `allocbench.base.spec`, and what they create.

`module:Class` is short for `external:class=module:Class`, and `./mine.so:free=NAME` for
`external:library=./mine.so,free=NAME`.
"""

from allocbench.allocators import _core
from allocbench.allocators._core import Allocator, Device, SpecError
from allocbench.base import spec as grammar
from allocbench.base.spec import OF, Spec, name_of, split

__all__ = ["OF", "Spec", "layers", "make", "name_of", "names", "parse", "split"]

_EXTERNAL, _CLASS, _LIBRARY = "external", "class", "library"


def parse(text: str, *, first: str | None = None) -> Spec:
    """Read a spec as `allocbench.base.spec.parse` does, but raise SpecError."""
    try:
        parsed = grammar.parse(text, first=first or _CLASS)
        if first:
            return parsed
        if any(_CLASS in layer.options and layer.name in _registered() for layer in parsed.layers):
            return grammar.parse(text)  # raises
        return _in_full(parsed)
    except grammar.SpecSyntaxError as error:
        raise SpecError(str(error)) from error


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
    parsed = parse(text)
    texts = {name: _text(value) for name, value in options.items()}
    in_text = parsed.options.keys() | ({OF} if parsed.inner else set())
    if twice := in_text & texts.keys():
        raise SpecError(f"the option {min(twice)} is given both in '{text}' and as a keyword")
    inner = parse(texts.pop(OF)) if OF in texts else parsed.inner
    layers = Spec(parsed.name, parsed.options | texts, inner).layers
    return _core.make([(layer.name, layer.options) for layer in layers], device)


def layers(text: str) -> list[tuple[str, dict[str, str]]]:
    """The wrappers, if any, and the strategy of a spec, each with its options, for the native core.

    Raises SpecError if the text is not a valid spec.
    """
    return [(layer.name, layer.options) for layer in parse(text).layers]


def _in_full(layer: Spec) -> Spec:
    """A spec without the short forms of `external`."""
    inner = _in_full(layer.inner) if layer.inner else None
    if layer.name.endswith(".so"):
        return Spec(_EXTERNAL, {_LIBRARY: layer.name} | layer.options, inner)
    if _CLASS in layer.options and layer.name != _EXTERNAL:
        return Spec(_EXTERNAL, layer.options | {_CLASS: f"{layer.name}:{layer.options[_CLASS]}"})
    return Spec(layer.name, layer.options, inner)


def _registered() -> set[str]:
    return {one.name for one in _core.strategies()} | {one.name for one in _core.wrappers()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
