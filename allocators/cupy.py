# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with CuPy: `use("bfc")`, or `with using("bfc")` for a block of code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from allocbench.allocators import _core
from allocbench.allocators._core import OutOfMemory
from allocbench.allocators.programs import Program


class CupyOutOfMemory(OutOfMemory, cupy.cuda.memory.OutOfMemoryError):  # type: ignore[misc]
    """Out of memory, for programs that catch CuPy's error and for those that catch ours."""

    def __init__(self, message: str) -> None:
        MemoryError.__init__(self, message)

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type[CupyOutOfMemory], tuple[str]]:
        return type(self), (str(self),)


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Make CuPy allocate its GPU memory through an allocator from now on.

    A block belongs to the stream that is current when it is requested, and is freed in the order
    of that stream, as in CuPy's own pool. Existing arrays keep their memory. A failed request
    raises CupyOutOfMemory with the numbers of the allocator.

    See `allocbench.allocators.programs.Program` for the parameters and the errors raised.
    """
    program = Program(spec, limit=limit, poison=poison)
    cupy.cuda.set_allocator(_malloc(program))
    return program


@contextmanager
def using(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Iterator[Program]:
    """Make CuPy allocate this thread's memory through an allocator within a block of code.

    Arrays created in the block stay valid after it. At the end, free memory goes back to the GPU.
    See `use`.
    """
    program = Program(spec, limit=limit, poison=poison)
    with cupy.cuda.using_allocator(_malloc(program)), program:
        yield program


def _malloc(program: Program) -> Callable[[int], Any]:
    """The malloc function for CuPy, which itself passes neither the stream nor the error."""
    address = _core.entry_point
    source = cupy.cuda.memory.CFunctionAllocator(
        program.address,
        address("allocbench_cupy_malloc"),
        address("allocbench_cupy_free"),
        program,
    )
    use_stream = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address("allocbench_cupy_use_stream"))

    def malloc(size: int) -> Any:
        use_stream(cupy.cuda.get_current_stream().ptr)
        pointer = source.malloc(size)
        if size and not pointer.ptr:
            raise CupyOutOfMemory(_core.last_failure())
        return pointer

    return malloc
