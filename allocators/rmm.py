# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with RMM, and thus with cuDF and cuML: `use("bfc")`."""

from __future__ import annotations

from typing import Any

import rmm

from allocbench.allocators._core import SpecError
from allocbench.allocators.programs import Program

_PROTOCOL = "__cuda_stream__"


def use(spec: str, *, limit: str | int | None = None, poison: bool = False) -> Program:
    """Make RMM allocate the memory of GPU 0 through an allocator from now on.

    A failing request raises MemoryError. See `allocators.programs.Program` for the parameters and
    the errors raised.
    """
    if not hasattr(rmm.pylibrmm.stream.Stream, _PROTOCOL):
        raise SpecError(f"this version of RMM is too old: its streams have no {_PROTOCOL}")
    program = Program(spec, limit=limit, poison=poison)
    rmm.mr.set_current_device_resource(resource(program))
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
