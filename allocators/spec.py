# SPDX-License-Identifier: Apache-2.0
"""Specs of allocators and devices, in the grammar of `allocbench.base.spec`."""

from __future__ import annotations

from allocbench.allocators._core import SpecError
from allocbench.base import spec as grammar
from allocbench.base.spec import OF, Spec, name_of, split

__all__ = ["OF", "Spec", "name_of", "parse", "split"]


def parse(text: str, *, first: str | None = None) -> Spec:
    """Read a spec as `allocbench.base.spec.parse` does, but raise SpecError."""
    try:
        return grammar.parse(text, first=first)
    except grammar.SpecSyntaxError as error:
        raise SpecError(str(error)) from error
