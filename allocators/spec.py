# SPDX-License-Identifier: Apache-2.0
"""Specs of allocators and devices, in the grammar of `allocbench.base.spec`.

`module:Class` is short for `external:class=module:Class`, and `./mine.so:free=NAME` for
`external:library=./mine.so,free=NAME`.
"""

from __future__ import annotations

from allocbench.allocators import _core
from allocbench.allocators._core import SpecError
from allocbench.base import spec as grammar
from allocbench.base.spec import OF, Spec, name_of, split

__all__ = ["OF", "Spec", "name_of", "parse", "split"]

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
