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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Protocol

_ON_READ = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
_SHAPES = re.compile(
    r"(nonzero(?!_static)|argwhere|_?unique|masked_select|repeat_interleave|bincount|_?coalesce"
    r"|_?to_sparse|one_hot)"
)
"""PyTorch's operators that read a value to determine the shape of their result."""
_SCALARS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__")
_COPIES = ("cpu", "to")
_MOST_TEXT = 4096
_OFTEN = 10_000
"""Reads of one line after which it may be a loop that waits for a value."""
_whole_lines = dict[str, str]()
"""By call site, whose line may be shortened."""
_REPLACES = "allocbench_null_optimizers"
_PRINTS = "torch._tensor_str"
"""It selects the elements that determine a format, which no memory of the program depends on."""
_FRAMES_OF_MODULES = "<allocbench."
"""How the file names of frames begin that a recording adds."""


class _Known(Protocol):
    """The module null_known."""

    def in_function(self, frame: FrameType, size: int) -> int | None: ...
    def in_operators(self, names: Iterable[str], size: int) -> int | None: ...


class _Libraries(Protocol):
    """The module null_libraries."""

    def known(self, frame: FrameType) -> int | None: ...


class Reads:
    """The reads of one process.

    sites, shapes: number of reads, and of those that make a shape empty, by call site: "train.py:88
    loss.item()". chosen: number of reads that returned a value chosen by the user. unused: the
    names of such values that no read had, in the user's order.
    """

    def __init__(
        self,
        core: ctypes.CDLL,
        values: Mapping[str, float],
        known: _Known,
        libraries: _Libraries,
    ) -> None:
        self.sites, self.shapes, self.chosen = Counter[str](), Counter[str](), 0
        self._core, self._values, self._known = core, values, known
        self.unused = [*values]
        self._libraries = libraries
        self._last = threading.local()
        self._callback = _ON_READ(self._on_read)  # kept as long as it can be called

    def answer(self, numbers: Sequence[int]) -> None:
        """From now on, reads of this thread return these numbers in turn, then the last one.

        Without numbers, they read what the user chose, or 0.
        """
        self._last.numbers = [*numbers]

    @contextmanager
    def answering(self, numbers: Sequence[int] = ()) -> Iterator[list[int]]:
        """`answer` while active; the numbers that determine a shape are added to the list."""
        former, within = getattr(self._last, "numbers", []), getattr(self._last, "given", [])
        given = self._last.given = list[int]()
        self.answer(numbers)
        try:
            yield given
        finally:
            within += given
            self._last.numbers, self._last.given = former, within

    @contextmanager
    def assuming(self, number: int) -> Iterator[None]:
        """While active, reads of this thread return this number unless the user chose another."""
        former = getattr(self._last, "assumed", None)
        self._last.assumed = number
        try:
            yield
        finally:
            self._last.assumed = former

    def watch(self, torch: ModuleType) -> None:
        """Start counting, and make reads return the values that the user chose."""
        self._core.null_on_read(self._callback)
        if self._values:
            for name in _SCALARS:
                self._replace(torch.Tensor, name, _same_type)
            for name in _COPIES:
                self._replace(torch.Tensor, name, _filled)

    def _on_read(self, size: int) -> int:
        """Count a read; the bits of the number that it returns."""
        caller, prints = sys._getframe().f_back, False
        for frame in _internal(caller):
            if (module := frame.f_globals.get("__name__")) == _REPLACES:
                return 0
            prints = prints or module == _PRINTS
            if (bits := self._known.in_function(frame, size)) is not None:
                return bits
        operators = self._operators()
        if (bits := self._known.in_operators(operators, size)) is not None:
            return bits
        if numbers := getattr(self._last, "numbers", None):
            return self._given(numbers.pop(0) if len(numbers) > 1 else numbers[0])
        site = call_site(caller)
        assumed: int | None = getattr(self._last, "assumed", None)
        if assumed is not None and self._value(site) is None:
            return assumed
        outside = _outside(caller) if self._value(site) is None else None
        if outside and (number := self._libraries.known(outside)) is not None:
            return self._given(number)
        place = site.partition(" ")[0]
        if not site:  # a thread of PyTorch's, such as that of the backward pass
            place = (operators or ["*"])[-1]
            site = f"outside Python: {place}"
        self._last.site = site
        self.sites[site] += 1
        if self.sites[site] == _OFTEN:
            text = f"{_OFTEN:,} reads of computed values"
            _warn(site, f"{text}; a loop may wait for another value: see --value")
        shaped = next(filter(_SHAPES.match, operators), None)
        return 0 if shaped is None or prints else self._elements(site, place, shaped)

    def _elements(self, site: str, place: str, operator: str) -> int:
        """The value of a read that determines a shape: mostly the number of elements.

        place: the beginning of the site, which names it for the user.
        """
        value = self._value(site)
        if value is not None:
            self.chosen += 1
            return self._given(max(0, int(value)))
        if site not in self.shapes:
            text = f"the shape of {operator} depends on a computed value, which reads as 0"
            _warn(site, f"{text}; --value {place}=NUMBER sets it")
        self.shapes[site] += 1
        return 0

    def _given(self, number: int) -> int:
        if (given := getattr(self._last, "given", None)) is not None:
            given.append(number)
        return number

    def _operators(self) -> list[str]:
        """The PyTorch operators that this thread is running, innermost first."""
        text = ctypes.create_string_buffer(_MOST_TEXT)
        self._core.null_operators(text, _MOST_TEXT)
        return text.value.decode().split()

    def _replace(self, kind: type, name: str, change: Callable[[Any, float], Any]) -> None:
        original = getattr(kind, name)

        @functools.wraps(original)
        def method(*arguments: Any, **options: Any) -> Any:
            self._last.site = None
            result = original(*arguments, **options)
            value = self._value(self._last.site)
            if value is None:
                return result
            self.chosen += 1
            return change(result, value)

        setattr(kind, name, method)

    def _value(self, site: str | None) -> float | None:
        """The value that the user chose for the reads of a call site."""
        if site is None:
            return None
        place = site.partition(" ")[0]
        source = _whole_lines.get(site, site)
        for name, value in self._values.items():
            if name in ("*", place) or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", source):
                if name in self.unused:
                    self.unused.remove(name)
                return value
        return None


def call_site(frame: FrameType | None) -> str:
    """ "train.py:88 loss.item()" for the innermost line that is not PyTorch's, or ""."""
    outside = _outside(frame)
    return _site(outside.f_code.co_filename, outside.f_lineno) if outside else ""


def _outside(frame: FrameType | None) -> FrameType | None:
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
    if frame.f_code.co_filename.startswith(_FRAMES_OF_MODULES):
        return True
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "torch" or package.startswith("allocbench_null")


def _internal(frame: FrameType | None) -> Iterator[FrameType]:
    """The innermost frames, up to the first that is not PyTorch's."""
    while frame is not None and _is_internal(frame):
        yield frame
        frame = frame.f_back


def _warn(site: str, text: str) -> None:
    print(f"allocbench: warning: {site}: {text}", file=sys.stderr, flush=True)


def _same_type(result: Any, value: float) -> Any:
    if isinstance(result, list):
        return [_same_type(element, value) for element in result]
    return type(result)(value)


def _filled(result: Any, value: float) -> Any:
    return result.fill_(value) if result.device.type == "cpu" else result
