# SPDX-License-Identifier: Apache-2.0
"""Any allocator under Numba, as an external memory manager: `use("bfc")`."""

from __future__ import annotations

import ctypes
from typing import Any

from numba import cuda

from allocbench.allocators.programs import Program


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Let Numba get its GPU memory from an allocator; to be called before it makes a context.

    Numba names no stream when it asks or frees: all is of the default stream, so an array that is
    used on another must be kept until the work there is done. For the parameters and what is
    raised, see `allocbench.allocators.programs.Program`.
    """
    program = Program(spec, limit=limit, poison=poison)

    class Manager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """GPU memory from the program; host memory as ever."""

        interface_version = 1

        def initialize(self) -> None:
            """Nothing to do: the program starts by itself."""

        def memalloc(self, size: int) -> Any:
            """A block, freed when nothing refers to the pointer any more."""
            memory = program.on(self.context.device.id)
            address = memory.allocate(size)
            pointer = ctypes.c_void_p(address)
            free = memory.deallocate
            return cuda.MemoryPointer(self.context, pointer, size, finalizer=lambda: free(address))

        def get_memory_info(self) -> Any:
            """Free and total bytes of the GPU."""
            device = program.on(self.context.device.id).device
            return cuda.MemoryInfo(free=device.free_bytes, total=device.capacity)

        def get_ipc_handle(self, memory: Any) -> Any:
            """Blocks are no allocations of the driver's own, which alone have handles."""
            raise NotImplementedError("a block of an allocator cannot be shared with a process")

    cuda.set_memory_manager(Manager)
    return program
