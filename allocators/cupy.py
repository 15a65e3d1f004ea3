# SPDX-License-Identifier: Apache-2.0
"""Any allocator under CuPy: `use("bfc")`, or `with using("bfc")` for a block of code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from allocbench.allocators import _core
from allocbench.allocators._core import OutOfMemory
from allocbench.allocators.programs import Program


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Let CuPy get its GPU memory from an allocator from now on.

    A block belongs to the stream that is current when it is asked for, and is freed in the order
    of that stream, as with CuPy's own pool. Arrays that exist keep their memory. A request that
    fails raises OutOfMemory, a MemoryError, with the numbers of the allocator.

    For the parameters and what is raised, see `allocbench.allocators.programs.Program`.
    """
    program = Program(spec, limit=limit, poison=poison)
    cupy.cuda.set_allocator(_malloc(program))
    return program


@contextmanager
def using(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Iterator[Program]:
    """Let CuPy get the memory of this thread from an allocator within a block of code.

    Arrays made there may live on. Free memory goes back to the GPU at the end. See `use`.
    """
    program = Program(spec, limit=limit, poison=poison)
    with cupy.cuda.using_allocator(_malloc(program)), program:
        yield program


def _malloc(program: Program) -> Callable[[int], Any]:
    """What CuPy calls for memory; it hands over neither stream nor reason of a failure itself."""
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
        found = source.malloc(size)
        if size and not found.ptr:
            raise OutOfMemory(_core.last_failure())
        return found

    return malloc
