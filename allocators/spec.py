# SPDX-License-Identifier: Apache-2.0
"""Specs: `name:option=value,option=value`, the way to write an allocator or a device.

A value of the form `key:value` may be a list of such: an item `key:value` without `=` belongs to
the option before it, as in `caching:conf=max_split_size_mb:128,expandable_segments:True`.
The last option of a wrapper is the allocator inside it, `of=` and a spec to the end of the text:
`check:of=limit:bytes=8GiB,of=bfc:allow_growth=false`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from allocbench.allocators._core import SpecError

OF = "of"


@dataclass(frozen=True)
class Spec:
    """A name and its options, as written: nothing is checked against what exists.

    `inner` is the spec after `of=`.
    """

    name: str
    options: dict[str, str] = field(default_factory=dict)
    inner: Spec | None = None

    def __str__(self) -> str:
        """Write the spec so that `parse` reads it back."""
        options = [f"{name}={value}" for name, value in self.options.items()]
        if self.inner:
            options.append(f"{OF}={self.inner}")
        return self.name + (":" + ",".join(options) if options else "")

    @property
    def layers(self) -> list[Spec]:
        """Itself and the specs inside, the outermost first."""
        return [self, *(self.inner.layers if self.inner else [])]


def parse(text: str, *, first: str | None = None) -> Spec:
    """Read a spec.

    `first` names the option that may be written without its name right after the colon, as
    the capacity in `sim:80GiB`. Raises SpecError when the text is no spec.
    """
    name, _, rest = text.strip().partition(":")
    if not name:
        raise SpecError(f"'{text}' is no spec: write name or name:option=value,option=value")
    options: dict[str, str] = {}
    option = ""
    items = rest.split(",") if rest else []
    for position, item in enumerate(items):
        if _continues(item, options.get(option, "")):
            options[option] += "," + item.strip()
            continue
        option, equals, value = (part.strip() for part in item.partition("="))
        if not equals and position == 0 and first:
            option, value = first, option
        elif not equals or not option:
            raise SpecError(f"'{text}' is no spec: '{item}' is not option=value")
        if option == OF:
            return Spec(name, options, parse(",".join([value, *items[position + 1 :]])))
        if option in options:
            raise SpecError(f"'{text}' gives the option {option} twice")
        options[option] = value
    return Spec(name, options)


def split(text: str) -> list[str]:
    """Cut a comma-separated list of specs, whose options have commas too.

    An item that is `option=value` belongs to the spec before it, and so does one that is part of
    its last value: `naive,bfc:a=1,b=2,buddy` is three specs.
    """
    specs: list[str] = []
    for item in text.split(","):
        is_option = "=" in item and ":" not in item.partition("=")[0]
        if specs and (is_option or _continues(item, specs[-1].rpartition("=")[2])):
            specs[-1] += "," + item
        else:
            specs.append(item)
    return [spec.strip() for spec in specs]


def _continues(item: str, value: str) -> bool:
    """Tell whether an item is one more `key:value` of a value that begins with one."""
    return ":" in item and "=" not in item and ":" in value
