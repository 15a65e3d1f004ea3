# SPDX-License-Identifier: Apache-2.0
"""The part of Numba through which it gets memory."""

from __future__ import annotations

import types
import weakref
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable
from typing import Any


class HostOnlyCUDAMemoryManager(ABC):
    """The base class of plugins, with the same abstract methods."""

    def __init__(self, *, context: Any) -> None:
        self.context = context

    @property
    @abstractmethod
    def interface_version(self) -> int: ...
    @abstractmethod
    def initialize(self) -> None: ...
    @abstractmethod
    def memalloc(self, size: int) -> Any: ...
    @abstractmethod
    def get_ipc_handle(self, memory: Any) -> Any: ...
    @abstractmethod
    def get_memory_info(self) -> Any: ...


class CUdeviceptr:
    """NVIDIA's binding of an address."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __int__(self) -> int:
        return self._address


class MemoryPointer:
    """Calls the finalizer when it is destroyed."""

    def __init__(
        self, context: Any, pointer: CUdeviceptr, size: int, finalizer: Callable[[], None]
    ) -> None:
        self.device_pointer, self.size = pointer, size
        self.device_pointer_value = int(pointer)
        weakref.finalize(self, finalizer)


manager: Any = None
"""The active manager."""


def _set(plugin: Callable[..., HostOnlyCUDAMemoryManager]) -> None:
    global manager
    assert plugin(context=None).interface_version == 1
    manager = plugin(context=types.SimpleNamespace(device=types.SimpleNamespace(id=0)))
    manager.initialize()


config = types.SimpleNamespace(CUDA_PER_THREAD_DEFAULT_STREAM=False)
_driver = types.SimpleNamespace(binding=types.SimpleNamespace(CUdeviceptr=CUdeviceptr))
cuda: Any = types.SimpleNamespace(
    cudadrv=types.SimpleNamespace(driver=_driver),
    HostOnlyCUDAMemoryManager=HostOnlyCUDAMemoryManager,
    MemoryInfo=namedtuple("MemoryInfo", "free total"),
    MemoryPointer=MemoryPointer,
    set_memory_manager=_set,
)
