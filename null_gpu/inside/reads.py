# SPDX-License-Identifier: Apache-2.0
"""Reads of computed values: who reads them, which shapes depend on them, what they read as."""

from __future__ import annotations

import ctypes
import functools
import linecache
import re
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from . import known_values

_ON_READ = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)
_OF_ELEMENTS = {"copy_", "_local_scalar_dense"}
_SHAPES = re.compile(
    r"(nonzero(?!_static)|argwhere|_?unique|masked_select|repeat_interleave|bincount|_?coalesce"
    r"|_?to_sparse|one_hot)"
)
"""PyTorch's operators that read a value to determine the shape of their result."""
_MOST_TEXT = 4096
_FIRST_TYPES = ("uint8", "int8", "int16", "int32", "int64", "half", "float", "double")
_WORDS = (1, 2, 4, 8)
"""Bytes of numbers."""
_OFTEN = 10_000
"""Reads of one line after which it may be a loop that waits for a value."""
_whole_lines = dict[str, str]()
"""By call site, whose line may be shortened."""
OUTSIDE_PYTHON = "outside Python: "
"""Begins the call site of a thread of PyTorch's."""
_PRINTS = "torch._tensor_str"
"""It selects the elements that determine a format, which no memory of the program depends on."""
_FRAMES_OF_MODULES = "<allocbench."
"""How the file names of frames begin that a recording adds."""
_PASSING_ON = ("__torch_function__", "__torch_dispatch__")
"""Functions by which subclasses of tensors and modes pass an operator on."""


class Reads:
    """The reads of one process.

    sites, shapes: number of reads, and of those that determine a shape, by call site: "train.py:88
    loss.item()". share: of the elements of a mask that it selects, if nothing is known of it.
    chosen: number of reads that returned a value chosen by the user. unused: the
    names of such values that no read had, in the user's order.
    """

    def __init__(
        self, core: ctypes.CDLL, values: Mapping[str, float], number: float, share: float
    ) -> None:
        """number: what all other reads return."""
        self.sites, self.shapes, self.chosen = Counter[str](), Counter[str](), 0
        self._core, self._values, self._number, self.share = core, values, number, share
        self.unused = [*values]
        self._last = threading.local()
        self._callback = _ON_READ(self._on_read)  # kept as long as it can be called

    def answer_until(self, numbers: Sequence[int]) -> Callable[[], None]:
        """Reads of this thread return these numbers in turn, then the last one, until the result is
        called.
        """
        return self._until("numbers", [*numbers])

    def assume_until(self, number: int) -> Callable[[], None]:
        """The same for reads for which the user chose no number."""
        return self._until("assumed", number)

    def usually_until(self, elements: int) -> Callable[[], None]:
        """The same for shapes: this share of so many elements."""
        return self._until("usual", int(elements * self.share))

    def note_until(self) -> Callable[[], list[int]]:
        """A function that returns the numbers which determined a shape on this thread so far."""
        given = list[int]()
        end = self._until("given", given)

        def ended() -> list[int]:
            end()
            return given

        return ended

    def _until(self, name: str, value: Any) -> Callable[[], None]:
        former = getattr(self._last, name, None)
        setattr(self._last, name, value)
        return lambda: setattr(self._last, name, former)

    def watch(self, torch: ModuleType) -> None:
        """Start counting, and answer the reads."""
        self._torch = torch
        self._types = {  # by PyTorch's number
            number: getattr(torch, name) for number, name in enumerate(_FIRST_TYPES)
        } | {11: torch.bool, 15: torch.bfloat16}
        self._core.null_on_read(self._callback)

    def _on_read(self, to: int, size: int) -> None:
        """Answer a read of `size` bytes, which are 0 so far."""
        kind, operators = self._operators()
        answer = self._answer(size, operators)
        if isinstance(answer, int):
            if answer and size in _WORDS:
                ctypes.memmove(to, answer.to_bytes(size, "little"), size)
        elif dtype := self._types.get(kind):
            count = size // dtype.itemsize
            with self._torch._C.DisableTorchFunction():
                is_mask = dtype is self._torch.bool and {*operators[:1]} & _OF_ELEMENTS
                if answer is None and is_mask and not self._number:
                    read = selecting(self._torch, int(count * self.share), count)
                else:
                    value = self._number if answer is None else answer
                    read = self._torch.full((count,), value, dtype=dtype, device="cpu")
                ctypes.memmove(to, read.data_ptr(), count * dtype.itemsize)

    def _answer(self, size: int, operators: Sequence[str]) -> int | float | None:
        """Count a read; the bits of its number, the value that the user chose, or None."""
        caller, prints = sys._getframe(1).f_back, False  # beyond _on_read
        for within in _internal(caller):
            prints = prints or within.f_globals.get("__name__") == _PRINTS
            if (bits := known_values.in_function(within, size)) is not None:
                return bits
        if (bits := known_values.in_operators(operators, size)) is not None:
            return bits
        if numbers := getattr(self._last, "numbers", None):
            return self._given(numbers.pop(0) if len(numbers) > 1 else numbers[0])
        site = call_site(caller)
        assumed: int | None = getattr(self._last, "assumed", None)
        value = self._value(site)
        if assumed is not None and value is None:
            return assumed
        at = (caller.f_code, caller.f_lasti) if caller and size == 1 and value is None else None
        if at and (bits := known_values.in_check(*at)) is not None:
            return bits
        frame = outside(caller) if value is None else None
        if frame and (number := known_values.in_library(frame)) is not None:
            return self._given(number)
        place = site.partition(" ")[0]
        if not site:  # a thread of PyTorch's, such as that of the backward pass
            place = (operators or ["*"])[0]
            site = OUTSIDE_PYTHON + place
            value = self._value(site)
        self.sites[site] += 1
        if self.sites[site] == _OFTEN:
            text = f"{_OFTEN:,} reads of computed values"
            _warn(site, f"{text}; a loop may wait for another value: see --value")
        shaped = next(filter(_SHAPES.match, operators), None)
        if shaped is not None and not prints:
            return self._elements(site, place, shaped)
        if value is None:
            return None
        self.chosen += 1
        return float(value)

    def _elements(self, site: str, place: str, operator: str) -> int:
        """The value of a read that determines a shape: mostly the number of elements.

        place: the beginning of the site, which names it for the user.
        """
        value = self._value(site)
        if value is not None:
            self.chosen += 1
            return self._given(max(0, int(value)))
        usual: int = getattr(self._last, "usual", None) or 0
        if site not in self.shapes:
            text = f"the shape of {operator} depends on a computed value, which reads as {usual:,}"
            _warn(site, f"{text}; --value {place}=NUMBER sets it")
        self.shapes[site] += 1
        return self._given(usual)

    def _given(self, number: int) -> int:
        if (given := getattr(self._last, "given", None)) is not None:
            given.append(number)
        return number

    def _operators(self) -> tuple[int, list[str]]:
        """The operators that this thread runs, innermost first, and the type of what is read."""
        text = ctypes.create_string_buffer(_MOST_TEXT)
        kind = self._core.null_operators(text, _MOST_TEXT)
        return kind, text.value.decode().split()

    def _value(self, site: str) -> float | None:
        """The value that the user chose for the reads of a call site."""
        place = site.partition(" ")[0]
        source = _whole_lines.get(site, site)
        for name, value in self._values.items():
            if name in ("*", place) or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", source):
                if name in self.unused:
                    self.unused.remove(name)
                return value
        return None


def selecting(torch: ModuleType, selected: int, count: int) -> Any:
    """A mask on the host of `count` elements; it selects so many, spread evenly."""
    place = torch.arange(count + 1, device="cpu") * min(selected, count) // max(count, 1)
    return place[1:] > place[:-1]


def call_site(frame: FrameType | None) -> str:
    """ "train.py:88 loss.item()" for the innermost line that is not PyTorch's, or ""."""
    found = outside(frame)
    return _site(found.f_code.co_filename, found.f_lineno) if found else ""


def outside(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not PyTorch's."""
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
    return frame


@functools.cache
def _site(path: str, line: int) -> str:
    whole = linecache.getline(path, line)
    source = textwrap.shorten(whole, 60, placeholder=" ...")
    site = f"{Path(path).name}:{line} {source}".strip()
    _whole_lines[site] = whole
    return site


def _is_internal(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_filename.startswith(_FRAMES_OF_MODULES) or code.co_name in _PASSING_ON:
        return True
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "torch" or package.startswith("allocbench_inside")


def _internal(frame: FrameType | None) -> Iterator[FrameType]:
    """The innermost frames, up to the first that is not PyTorch's."""
    while frame is not None and _is_internal(frame):
        yield frame
        frame = frame.f_back


def _warn(site: str, text: str) -> None:
    print(f"allocbench: warning: {site}: {text}", file=sys.stderr, flush=True)
