# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with Numba, as an external memory manager: `use("bfc")`."""

from __future__ import annotations

import ctypes
from typing import Any

from numba import cuda

from allocbench.allocators.programs import Program


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Make Numba allocate its GPU memory through an allocator. Call before it creates a context.

    Numba passes no stream, so all blocks belong to the default stream: an array that is used on
    another stream must be kept alive until the work there is done. See
    `allocbench.allocators.programs.Program` for the parameters and the errors raised.
    """
    program = Program(spec, limit=limit, poison=poison)

    class Manager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """Allocates GPU memory through the program, and host memory as Numba does by default."""

        interface_version = 1

        def initialize(self) -> None:
            """Does nothing: the program starts on first use."""

        def memalloc(self, size: int) -> Any:
            """A block that is freed when the last reference to the pointer goes away."""
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
            """Not supported: only the driver's own allocations have IPC handles."""
            raise NotImplementedError("memory of an allocator cannot be shared between processes")

    cuda.set_memory_manager(Manager)
    return program
