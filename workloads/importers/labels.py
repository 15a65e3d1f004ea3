# SPDX-License-Identifier: Apache-2.0
"""Names of allocs, from their call stacks, and of marks.

An alloc has a label, the operator or line that requested memory; the module it belongs to; the line
of the user's program, and the calls that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

_OPERATOR = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)")
_MAKES_TENSORS = re.compile(r"(?:aten::)?(?:new_)?(?:empty|resize)(?:_|\b)")
_PACKAGES = r"(?:^|[/\\])(?:site|dist)-packages[/\\]"
_INSTALLED = re.compile(_PACKAGES + r"|[/\\](?:bin|Scripts)[/\\][\w-]+$")  # or bin/yolo
_TORCH = re.compile(_PACKAGES + r"torch[/\\]")
_NO_PROGRAM = re.compile(
    _TORCH.pattern
    + r"|/lib/python3[^/]*/(?!(?:site|dist)-packages/)|\\Lib\\(?!site-packages\\)"  # Python's
    + r"|[/\\](\w\w)[/\\]c\1[a-z2-7]{49}\.py$"  # what torch.compile generates, named by a hash
    + r"|/null_gpu/(?:hook|inside)/|^<|^\?\?|\.(?:cpp|cc|cxx|c|cu|cuh|h|hpp|S|so)\b|^$"
)
_OPTIMIZER_STEP = "allocbench.optimizer_step"  # as in workloads/recording_hook.py
_PROFILER_STEP = "ProfilerStep"
_NUMBERED_STEP = re.compile(r"#*\s*ProfilerStep\b")
OPTIMIZER_ENDS = "allocbench.optimizer_ends"
"""The name of a range that begins where `Optimizer.step` ends, which PyTorch annotates."""
_STEPS = (_PROFILER_STEP, "step", _OPTIMIZER_STEP, OPTIMIZER_ENDS)
_ENGINE = "torch::autograd::Engine::thread_main"
_OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\]")
_MOST = 200  # characters
_MOST_CALLS = 50  # of a stack
MODULE_FILE = "<allocbench.module>"
"""The file name of frames that are named after a module; as in workloads/module_hook.py."""
BACKWARD = "backward pass"
"""The kind of an alloc of the backward pass that is nothing more specific, such as a gradient."""
OPTIMIZER = "optimizer's step"
"""The same for an alloc that one of PyTorch's optimizers makes."""


class Frame(NamedTuple):
    """A call, as PyTorch records it."""

    filename: str
    line: int
    name: str


def innermost(operators: Iterable[str]) -> str:
    """The innermost of nested operators, given innermost first, that computes something.

    Operators that only create a tensor, such as aten::empty, are skipped unless there is no other
    operator. Empty if there is no operator.
    """
    first = ""
    for operator in operators:
        if not only_creates(operator):
            return operator
        first = first or operator
    return first


def only_creates(operator: str) -> bool:
    """Whether an operator only creates a tensor, such as aten::empty, and computes nothing."""
    return bool(_MAKES_TENSORS.match(operator))


def names_of(frames: Sequence[Frame]) -> dict[str, str]:
    """The names of an alloc with this call stack, by column of a trace."""
    updates = any(_OPTIMIZER.search(frame.filename) for frame in frames)
    pass_ = BACKWARD if is_backward(frames) else OPTIMIZER if updates else ""
    return {
        "label": label_of(frames),
        "module": module_of(frames),
        "kind": pass_,
        "line": line_of(frames),
        "stack": stack_of(frames),
    }


def label_of(frames: Iterable[Frame]) -> str:
    """The label of a call stack, innermost frame first.

    With C++ frames it is the operator, such as "aten::addmm"; else the first frame outside of
    installed packages, such as "train.py:12 main"; else the first frame, except in a thread of the
    autograd engine; else "".
    """
    usable = [frame for frame in frames if frame.filename != MODULE_FILE]
    operators = (_operator(frame.name) for frame in usable)
    if operator := innermost(filter(None, operators)):
        return operator[:_MOST]
    others = [] if is_backward(usable) else usable
    for frame in (*(entry for entry in usable if _is_users(entry.filename)), *others):
        return _call(frame) if frame.filename else frame.name[:_MOST]
    return ""


def line_of(frames: Iterable[Frame]) -> str:
    """The line of the user's program in a call stack, innermost frame first.

    It is the first one outside of installed packages and Python's library, such as
    "train.py:68 forward"; else the first one outside of PyTorch and Python's library; else "".
    """
    usable = [frame for frame in frames if _is_program(frame.filename)]
    users = (frame for frame in usable if _is_users(frame.filename))
    frame = next(users, next(iter(usable), None))
    return _call(frame) if frame else ""


def stack_of(frames: Sequence[Frame]) -> str:
    """The calls of a stack that are neither PyTorch's nor Python's library's, outermost first.

    They are joined with semicolons. Of a deep stack, the outermost calls are left out.
    """
    calls = [_call(frame).replace(";", ",") for frame in frames if _is_program(frame.filename)]
    return ";".join(reversed(calls[:_MOST_CALLS]))


def module_of(frames: Iterable[Frame]) -> str:
    """The path of the innermost module in a call stack, innermost frame first, or ""."""
    names = (frame.name[:_MOST] for frame in frames if frame.filename == MODULE_FILE)
    return next(filter(None, names), "")


def is_backward(frames: Sequence[Frame]) -> bool:
    """Whether a call stack is that of a thread of the autograd engine.

    C++ frames show it. Without them, such a thread has no frames, unless a node or a hook is
    written in Python; the outermost frame is then PyTorch's, while that of every other thread is
    the program's or Python's.
    """
    if not frames:
        return False
    return bool(_TORCH.search(frames[-1].filename)) or any(
        _ENGINE in frame.name for frame in frames
    )


def marks_of(annotations: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The marks of annotated ranges, given when each begins and its name.

    The steps are those of the profiler; without them, the program's own ranges with the name
    "step"; without these, the steps of the optimizer, which `allocbench record` annotates; without
    these, the ends of `Optimizer.step`. The others of these ranges are left out, so that each step
    counts once.
    """
    marks = [(when, _mark_of(name)) for when, name in annotations]
    found = {name for _, name in marks}
    steps = next((name for name in _STEPS if name in found), None)
    return [
        (when, "step" if name == steps else name)
        for when, name in marks
        if name == steps or name not in _STEPS
    ]


def is_update(annotation: str) -> bool:
    """Whether a range is the step of an optimizer."""
    return annotation.startswith("Optimizer.step#")


def _mark_of(annotation: str) -> str:
    return _PROFILER_STEP if _NUMBERED_STEP.match(annotation) else annotation[:_MOST]


@lru_cache(1 << 16)
def _operator(name: str) -> str:
    match = _OPERATOR.search(name)
    return f"aten::{match[1]}" if match else ""


@lru_cache(1 << 16)
def _is_program(file: str) -> bool:
    return not _NO_PROGRAM.search(file)


def _is_users(file: str) -> bool:
    return _is_program(file) and not _INSTALLED.search(file)


def _call(frame: Frame) -> str:
    file = re.split(r"[/\\]", frame.filename)[-1]
    return f"{file}:{frame.line} {frame.name}"[:_MOST]
