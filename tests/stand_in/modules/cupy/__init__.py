# SPDX-License-Identifier: Apache-2.0
"""The part of CuPy through which it gets memory."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)


class _Memory:
    def __init__(self, size: int, param: int, malloc: int, free: int, device: int) -> None:
        self._param, self._free, self.device_id = param, _FREE(free), device
        self.ptr = (_MALLOC(malloc)(param, size, device) or 0) if size else 0

    def __del__(self) -> None:
        if self.ptr:
            self._free(self._param, self.ptr, self.device_id)


class OutOfMemoryError(MemoryError):
    """Like CuPy's own error, which is created from numbers."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,})")


class MemoryPointer:
    """An address in a memory."""

    def __init__(self, memory: _Memory, offset: int) -> None:
        self.mem, self.ptr = memory, memory.ptr + offset


class CFunctionAllocator:
    """Calls C functions; keeps their owner for as long as itself."""

    def __init__(self, param: int, malloc: int, free: int, owner: object) -> None:
        self._param, self._malloc, self._free, self._owner = param, malloc, free, owner

    def malloc(self, size: int) -> MemoryPointer:
        return MemoryPointer(_Memory(size, self._param, self._malloc, self._free, current), 0)


def _set(allocator: Callable[[int], Any]) -> None:
    global _allocator
    _allocator = allocator


@contextmanager
def _using(allocator: Callable[[int], Any]) -> Iterator[None]:
    before = _allocator
    _set(allocator)
    try:
        yield
    finally:
        _set(before)


def _native(size: int) -> Any:
    raise AssertionError("CuPy's own pool is not here")


_allocator: Callable[[int], Any] = _native
current = 0
"""The current GPU."""
stream = types.SimpleNamespace(ptr=0)
"""The current stream."""

cuda: Any = types.SimpleNamespace(
    alloc=lambda size: _allocator(size),
    get_current_stream=lambda: stream,
    memory=types.SimpleNamespace(
        CFunctionAllocator=CFunctionAllocator, OutOfMemoryError=OutOfMemoryError
    ),
    set_allocator=_set,
    using_allocator=_using,
)
