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
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_ON_READ = ctypes.CFUNCTYPE(None, ctypes.c_uint64)
_SHAPES = re.compile(
    r"(nonzero(?!_static)|argwhere|_?unique|masked_select|repeat_interleave|bincount|_?coalesce"
    r"|_?to_sparse)"
)
"""PyTorch's operators that read a value to determine the shape of their result."""
_SCALARS = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__")
_COPIES = ("cpu", "to")
_MOST_TEXT = 4096
_KNOWN = "allocbench_null_optimizers"


class Reads:
    """The reads of one process.

    sites, shapes: number of reads, and of those that determine a shape, by call site: "train.py:88
    loss.item()". chosen: number of reads that returned a value chosen by the user.
    """

    def __init__(self, core: ctypes.CDLL, values: Mapping[str, float]) -> None:
        self.sites, self.shapes, self.chosen = Counter[str](), Counter[str](), 0
        self._core, self._values = core, values
        self._last = threading.local()
        self._callback = _ON_READ(self._on_read)  # kept as long as it can be called

    def watch(self, torch: ModuleType) -> None:
        """Start counting, and make reads return the values that the user chose."""
        self._core.null_on_read(self._callback)
        if self._values:
            for name in _SCALARS:
                self._replace(torch.Tensor, name, _same_type)
            for name in _COPIES:
                self._replace(torch.Tensor, name, _filled)

    def _on_read(self, _bytes: int) -> None:
        caller = sys._getframe().f_back
        if _is_known(caller):
            return
        operators = self._operators()
        site = call_site(caller)
        if not site:  # a thread of PyTorch's, such as that of the backward pass
            site = " ".join(["outside Python:", *operators[-1:]])
        self._last.site = site
        self.sites[site] += 1
        for operator in filter(_SHAPES.match, operators):
            if site not in self.shapes:
                text = f"the shape of {operator} depends on a computed value, which reads as 0"
                print(f"allocbench: warning: {site}: {text}", file=sys.stderr, flush=True)
            self.shapes[site] += 1
            break

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
        place, _, source = site.partition(" ")
        for name, value in self._values.items():
            if name in ("*", place) or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", source):
                return value
        return None


def call_site(frame: FrameType | None) -> str:
    """ "train.py:88 loss.item()" for the innermost line that is not PyTorch's, or ""."""
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
    return _site(frame.f_code.co_filename, frame.f_lineno) if frame else ""


@functools.cache
def _site(path: str, line: int) -> str:
    source = textwrap.shorten(linecache.getline(path, line), 60, placeholder=" ...")
    return f"{Path(path).name}:{line} {source}".strip()


def _is_internal(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "torch" or package.startswith("allocbench_null")


def _is_known(frame: FrameType | None) -> bool:
    """Whether null_optimizers.py replaces the value."""
    while frame is not None and _is_internal(frame):
        if frame.f_globals.get("__name__") == _KNOWN:
            return True
        frame = frame.f_back
    return False


def _same_type(result: Any, value: float) -> Any:
    if isinstance(result, list):
        return [_same_type(element, value) for element in result]
    return type(result)(value)


def _filled(result: Any, value: float) -> Any:
    return result.fill_(value) if result.device.type == "cpu" else result
