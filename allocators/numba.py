# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with Numba, as an external memory manager: `use("bfc")`."""

from __future__ import annotations

import ctypes
from typing import Any

from numba import config, cuda

from allocbench.allocators.programs import Program


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Make Numba allocate its GPU memory through an allocator. Call it before a context exists.

    Numba gives no stream with requests and frees, so all blocks belong to the default stream (that
    of the thread, with NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM=1). An array that is used on another
    stream must be kept until the work there has finished. See
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
            address = memory.allocate(size, _default_stream())
            pointer = _pointer(address)
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


def _pointer(address: int) -> Any:
    """An address in the type of Numba's binding: NVIDIA's, or its own based on ctypes."""
    driver = cuda.cudadrv.driver
    binding = getattr(driver, "binding", None)
    if binding is not None and getattr(driver, "USE_NV_BINDING", True):
        return binding.CUdeviceptr(address)
    return ctypes.c_void_p(address)


def _default_stream() -> int:
    """The CUDA handle of Numba's default stream."""
    return 2 if getattr(config, "CUDA_PER_THREAD_DEFAULT_STREAM", False) else 0
