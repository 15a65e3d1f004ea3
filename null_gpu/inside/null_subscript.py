# SPDX-License-Identifier: Apache-2.0
"""Replaces `tensor[index]`.

A method `__getitem__` written in Python would make a tensor a sequence for C code: then
`torch.tensor([first, second])` asks the tensors for their lengths, which those without dimensions
do not have. So only the slot of the type is replaced that implements `tensor[index]`.
"""

from __future__ import annotations

import ctypes
from typing import Any

_AFTER_HEAD = 11
"""Pointers in a PyTypeObject between its head and tp_as_mapping, since Python 3.4."""
_POINTER = ctypes.sizeof(ctypes.c_void_p)


class _Mapping(ctypes.Structure):
    """PyMappingMethods of CPython."""

    _fields_ = (
        ("length", ctypes.c_void_p),
        ("subscript", ctypes.c_void_p),
        ("assign", ctypes.c_void_p),
    )


def replace(core: ctypes.CDLL, kinds: tuple[type, ...], function: Any) -> bool:
    """Have `value[index]` of these types call a function; False: this Python is not as expected.

    kinds: types that all have the slot of the last one.
    """
    mappings = list(map(_mapping, kinds))
    slots = {mapping.subscript for mapping in mappings if mapping is not None}
    if len(slots) != 1 or None in (*slots, *mappings):
        return False
    call = ctypes.cast(ctypes.pythonapi.PyObject_CallFunctionObjArgs, ctypes.c_void_p)
    _kept.append(function)
    core.null_on_subscript(call, ctypes.py_object(function))
    for mapping in mappings[:-1]:
        mapping.subscript = ctypes.cast(core.null_subscript, ctypes.c_void_p).value
    return True


_kept = list[Any]()
"""The native library does not count its reference."""


def _mapping(kind: type) -> Any:
    head = object.__basicsize__ + _POINTER  # PyObject_VAR_HEAD
    place = ctypes.c_void_p.from_address(id(kind) + head + _AFTER_HEAD * _POINTER)
    return _Mapping.from_address(place.value) if place.value else None
