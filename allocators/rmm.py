# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with RMM, and thus with cuDF and cuML: `use("bfc")`."""

from __future__ import annotations

from typing import Any

import rmm

from allocbench.allocators._core import SpecError
from allocbench.allocators.programs import Program

_PROTOCOL = "__cuda_stream__"


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Make RMM get the memory of the current GPU from an allocator from now on.

    For other GPUs, pass a `resource` of the same program to `rmm.mr.set_per_device_resource`. See
    `allocbench.allocators.programs.Program` for the parameters and the errors raised. Requires RMM
    25.12 or later. A failed request raises MemoryError.
    """
    if not hasattr(rmm.pylibrmm.stream.Stream, _PROTOCOL):
        raise SpecError(
            f"RMM {rmm.__version__} is too old: handles of streams require 25.12 or later"
        )
    program = Program(spec, limit=limit, poison=poison)
    ordinal = rmm._cuda.gpu.getDevice()
    rmm.mr.set_per_device_resource(ordinal, resource(program, ordinal))
    return program


def resource(program: Program, ordinal: int = 0) -> Any:
    """An RMM memory resource that gets the memory of one GPU from a program's allocator."""
    memory = program.on(ordinal)

    def allocate(size: int, stream: Any) -> int:
        return memory.allocate(size, _handle(stream))

    def deallocate(address: int, size: int, stream: Any) -> None:
        memory.use_on(address, _handle(stream))  # a free on another stream counts as a use there
        memory.deallocate(address)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def _handle(stream: Any) -> int:
    return int(getattr(stream, _PROTOCOL)()[1])  # element 0 is the version of the protocol
