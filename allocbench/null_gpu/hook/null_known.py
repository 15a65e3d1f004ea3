# SPDX-License-Identifier: Apache-2.0
"""Values that PyTorch reads from the GPU itself, and that are known although no kernel ran.

A check of PyTorch, such as that of a distribution's parameters, is passed: on a real GPU, a program
that works passes it too. The scale of a GradScaler is the one that it began with, because it finds
no gradient that is not finite.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

_SINGLE = 4  # bytes of a number in single precision


def _passed(_size: int, _names: Mapping[str, Any]) -> int:
    return 1


def _none_found(_size: int, _names: Mapping[str, Any]) -> int:
    return 0


def _initial_scale(size: int, names: Mapping[str, Any]) -> int | None:
    scale = getattr(names.get("self"), "_init_scale", None)
    if size != _SINGLE or scale is None:
        return None
    return int.from_bytes(struct.pack("=f", scale), "little")


_KNOWN: Mapping[tuple[str, str], Callable[[int, Mapping[str, Any]], int | None]] = {
    ("torch", "_check_tensor_all_with"): _passed,
    ("torch.distributions.distribution", "__init__"): _passed,
    ("torch.distributions.distribution", "_validate_sample"): _passed,
    ("torch.testing._comparison", "_compare_regular_values_close"): _passed,
    ("torch.amp.grad_scaler", "get_scale"): _initial_scale,
    ("torch.amp.grad_scaler", "_maybe_opt_step"): _none_found,
}
"""By module and function. Arguments: the bytes that are read, and the function's variables."""
_CHECKING = re.compile(r"normal_|repeat_interleave")
"""Operators that read whether their arguments are valid."""


def in_operators(names: Iterable[str], size: int) -> int | None:
    """The bits of the value that one of these operators reads; None: not known."""
    return 1 if size == 1 and any(map(_CHECKING.match, names)) else None


def in_function(frame: FrameType, size: int) -> int | None:
    """The bits of the value that a function of PyTorch reads in this frame; None: not known."""
    find = _KNOWN.get((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
    return find(size, frame.f_locals) if find else None
