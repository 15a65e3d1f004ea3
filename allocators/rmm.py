# SPDX-License-Identifier: Apache-2.0
"""Any allocator under RMM, and with it under cuDF and cuML: `use("bfc")`."""

from __future__ import annotations

from typing import Any

import rmm

from allocbench.allocators._core import SpecError
from allocbench.allocators.programs import Program

_PROTOCOL = "__cuda_stream__"


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Let RMM get the memory of GPU 0 from an allocator, from now on.

    For the parameters and what is raised, see `allocators.programs.Program`. A request that fails
    raises MemoryError.
    """
    if not hasattr(rmm.pylibrmm.stream.Stream, _PROTOCOL):
        raise SpecError("RMM is too old: its streams do not tell their handle")
    program = Program(spec, limit=limit, poison=poison)
    rmm.mr.set_current_device_resource(resource(program))
    return program


def resource(program: Program, ordinal: int = 0) -> Any:
    """A memory resource of RMM that asks a program's allocator for the memory of one GPU."""
    memory = program.on(ordinal)

    def allocate(size: int, stream: Any) -> int:
        return memory.allocate(size, _handle(stream))

    def deallocate(address: int, size: int, stream: Any) -> None:
        memory.use_on(address, _handle(stream))  # freed on another stream: used there
        memory.deallocate(address)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def _handle(stream: Any) -> int:
    return int(getattr(stream, _PROTOCOL)()[1])  # after the protocol's version
