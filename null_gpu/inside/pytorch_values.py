# SPDX-License-Identifier: Apache-2.0
"""Values that PyTorch reads from the GPU itself, and that are known although no kernel ran.

A check of PyTorch, such as that of a distribution's parameters, is passed: on a real GPU, a program
that works passes it too, and tensors that it compares are close. The scale of a GradScaler is the
one that it began with, because it finds no gradient that is not finite. An optimizer that was
loaded from a checkpoint with `map_location="cuda"` keeps its count of steps on the GPU: Adam and
others divide by 1 - beta ** count, which would be zero for 0. LBFGS finds a better loss in each
iteration, so it makes `max_iter` of them, and fills its history.
"""

from __future__ import annotations

import itertools
import linecache
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from types import FrameType

_SINGLE = 4  # bytes of a number in single precision
_FORMATS = {2: "=e", _SINGLE: "=f", 8: "=d"}  # by bytes
_evaluations = itertools.count(1)


def _passed(_size: int, _frame: FrameType) -> int:
    return 1


def _all_ranks(_size: int, frame: FrameType) -> int | None:
    """How many ranks gave batch normalization some elements."""
    mask = frame.f_locals.get("mask")
    return None if mask is None else len(mask)


def _none_found(_size: int, _frame: FrameType) -> int:
    return 0


def _one(size: int, _frame: FrameType) -> int | None:
    """An optimizer's count of steps, by which it divides. It is a real number, or an older one."""
    return _bits(1.0, size) if size == _SINGLE else 1


def _initial_scale(size: int, frame: FrameType) -> int | None:
    scale = getattr(frame.f_locals.get("self"), "_init_scale", None)
    if size != _SINGLE or scale is None:
        return None
    return _bits(scale, size)


def _improving(size: int, frame: FrameType) -> int | None:
    """What LBFGS reads: a loss below the last one, whether a condition is met, or a factor."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if "float(" in line:
        return _bits(-float(next(_evaluations)), size)
    return int(any(condition in line for condition in _MET))


_MET = ("ys >", "abs(gtd_new) <=")
"""The curvature is positive, and the first point on a line is good enough."""


def _bits(number: float, size: int) -> int | None:
    if size not in _FORMATS:
        return None
    return int.from_bytes(struct.pack(_FORMATS[size], number), "little")


_KNOWN: Mapping[tuple[str, str], Callable[[int, FrameType], int | None]] = {
    ("torch", "_check_tensor_all_with"): _passed,
    ("torch.distributions.distribution", "__init__"): _passed,
    ("torch.distributions.distribution", "_validate_sample"): _passed,
    ("torch.nn.modules._functions", "forward"): _all_ranks,
    ("torch.testing._comparison", "_compare_regular_values_close"): _passed,
    ("torch.amp.grad_scaler", "get_scale"): _initial_scale,
    ("torch.amp.grad_scaler", "_maybe_opt_step"): _none_found,
    ("torch.optim.optimizer", "_get_value"): _one,
    ("torch.optim.lbfgs", "step"): _improving,
    ("torch.optim.lbfgs", "_add_grad"): _improving,
    ("torch.optim.lbfgs", "_directional_evaluate"): _improving,
    ("torch.optim.lbfgs", "_strong_wolfe"): _improving,
}
"""By module and function. Arguments: the bytes that are read, and the function's frame."""
_CHECKING = re.compile(r"normal_|repeat_interleave|allclose")
"""Operators that read whether their arguments are valid, or as expected."""


def in_operators(names: Iterable[str], size: int) -> int | None:
    """The bits of the value that one of these operators reads; None: not known."""
    return 1 if size == 1 and any(map(_CHECKING.match, names)) else None


def in_function(frame: FrameType, size: int) -> int | None:
    """The bits of the value that a function of PyTorch reads in this frame; None: not known."""
    find = _KNOWN.get((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
    return find(size, frame) if find else None
