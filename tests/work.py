# SPDX-License-Identifier: Apache-2.0
"""How much work Python code does, counted instead of timed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], object], package: str = "allocbench.") -> int:
    """How many lines of a package run during a call; each pass of a loop counts."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if not frame.f_globals.get("__name__", "").startswith(package):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines
