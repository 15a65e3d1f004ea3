# SPDX-License-Identifier: Apache-2.0
"""The grammar of specs: `name:option=value,option=value`.

Allocators, devices and workloads are all written this way. A value of the form `key:value` may be a
list: an item `key:value` without `=` continues the value of the option before it, as in
`caching:conf=max_split_size_mb:128,expandable_segments:True`. The last option of a wrapper is the
allocator inside it, `of=` followed by a spec to the end of the text:
`check:of=limit:bytes=8GiB,of=bfc:allow_growth=false`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from allocbench.base.text import encodable

OF = "of"
MOST_LAYERS = 32
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")
_LIST = re.compile(r"\d+(?:,\d+)*")


class SpecSyntaxError(ValueError):
    """A text that is not a spec."""


@dataclass(frozen=True)
class Spec:
    """A name and its options as they are written. Nothing is checked against what exists.

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
        """This spec and those inside it, the outermost first."""
        return [self, *(self.inner.layers if self.inner else [])]


def parse(text: str, *, first: str | None = None) -> Spec:
    """Read a spec.

    `first` names the option that may be written without its name right after the colon, as the
    capacity in `sim:80GiB`, in this spec and in those inside it. Raises SpecSyntaxError when the
    text is not a spec.
    """
    return _parse_layer(text, first, 1)


def name_of(text: str) -> str:
    """The name at the beginning of a spec, without a check of what follows."""
    return text.partition(":")[0].strip()


def options_of(text: str) -> str:
    """The options of a spec as they are written, without a check of them."""
    return text.partition(":")[2]


def parse_options(text: str) -> dict[str, str]:
    """Read `option=value,option=value` without a name; raises SpecSyntaxError."""
    return _parse(text, "", text, None, 1).options


def parse_option(text: str) -> tuple[str, str]:
    """Read one `option=value`; raises SpecSyntaxError. Only the option may contain `=`."""
    option, equals, value = (part.strip() for part in text.rpartition("="))
    if not equals or not option or not value:
        raise SpecSyntaxError(f"'{text}' is not option=value")
    return option, value


def parse_numbers(text: str) -> Sequence[int]:
    """Read the whole numbers of `8..256`, `8..256:8` (every eighth) or `8,16,24`.

    Raises SpecSyntaxError.
    """
    if limits := _RANGE.fullmatch(text):
        first, last, step = int(limits[1]), int(limits[2]), int(limits[3] or 1)
        return range(first, last + 1, step) if step else ()
    if _LIST.fullmatch(text):
        return [int(number) for number in text.split(",")]
    raise SpecSyntaxError(f"'{text}' is not a range such as 8..256 or 8..256:8, or a list 8,16,24")


def _parse_layer(text: str, first: str | None, layer: int) -> Spec:
    if layer > MOST_LAYERS:
        raise SpecSyntaxError(f"more than {MOST_LAYERS} specs inside each other")
    if text != encodable(text):
        raise SpecSyntaxError(f"'{text}' is not UTF-8")
    before, _, rest = text.partition(":")
    name = before.strip()
    if not name:
        raise SpecSyntaxError(
            f"'{text}' is not a spec: write name or name:option=value,option=value"
        )
    return _parse(text, name, rest.rstrip(), first, layer)


def _parse(text: str, name: str, rest: str, first: str | None, layer: int) -> Spec:
    form = "a spec" if name else "a list of options"
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
            hint = f"; write {option.replace(':', '=', 1)}" if ":" in option else ""
            raise SpecSyntaxError(f"'{text}' is not {form}: '{item}' is not option=value{hint}")
        if option == OF and name:
            inside = ",".join([value, *items[position + 1 :]])
            return Spec(name, options, _parse_layer(inside, first, layer + 1))
        if option in options:
            raise SpecSyntaxError(f"'{text}' gives the option {option} twice")
        options[option] = value
    return Spec(name, options)


def split(text: str) -> list[str]:
    """Cut a comma-separated list of specs, whose options also contain commas.

    An item `option=value` belongs to the spec before it, and so does an item that continues the
    last value of that spec: `naive,bfc:a=1,b=2,buddy` is three specs.
    """
    specs: list[str] = []
    for item in text.split(","):
        is_option = "=" in item and ":" not in item.partition("=")[0]
        last_value = specs[-1].partition("=")[2].rpartition("=")[2] if specs else ""
        if specs and (is_option or _continues(item, last_value)):
            specs[-1] += "," + item
        else:
            specs.append(item)
    return [spec.strip() for spec in specs]


def _continues(item: str, value: str) -> bool:
    """Whether an item is one more `key:value` of a value that begins with one."""
    return ":" in item and "=" not in item and ":" in value
