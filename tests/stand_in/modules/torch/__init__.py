# SPDX-License-Identifier: Apache-2.0
"""The part of a CUDA build of PyTorch that gets memory from a pluggable allocator."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from typing import Any

__version__ = "2.99.0"

_ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_RESET = ctypes.CFUNCTYPE(None)
_RECORD_STREAM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Pluggable:
    """The result of `_cuda_customAllocator`."""

    def __init__(self, alloc: int, free: int) -> None:
        self.alloc, self.free = _ALLOC(alloc), _FREE(free)
        self.hooks: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[[int], None]:
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.hooks.update({name: address})


_current: Pluggable | None = None


def _change(allocator: Pluggable) -> None:
    global _current
    _current = allocator


_C = types.SimpleNamespace(_cuda_customAllocator=Pluggable, _cuda_changeCurrentAllocator=_change)


class Storage:
    """Memory on a GPU, freed when nothing refers to it."""

    def __init__(self, size: int, device: int = 0, stream: int = 0) -> None:
        assert _current is not None, "PyTorch's own allocator is not here"
        self._plugged, self._free = _current, _current.free
        self.size, self.device, self.stream = size, device, stream
        self.address = _current.alloc(size, device, stream)

    def record_stream(self, stream: int) -> None:
        _RECORD_STREAM(self._plugged.hooks["set_record_stream_fn"])(self.address, stream)

    def __del__(self) -> None:
        if address := getattr(self, "address", None):
            self._free(address, self.size, self.device, self.stream)


def _empty_cache() -> None:
    assert _current is not None
    _RESET(_current.hooks["set_reset_fn"])()


cuda: Any = types.SimpleNamespace(is_initialized=lambda: False, empty_cache=_empty_cache)
cuda.memory = types.SimpleNamespace()
cuda._utils = types.SimpleNamespace(_get_device_index=lambda device, optional: device or 0)

_after_steps: list[Callable[..., None]] = []
_optimizer: Any = types.ModuleType("torch.optim.optimizer")
_optimizer.register_optimizer_step_post_hook = _after_steps.append
if __name__ == "torch":  # else a part of it is borrowed for the real one
    sys.modules |= {"torch.optim": types.ModuleType("torch.optim"), _optimizer.__name__: _optimizer}


def step() -> None:
    for hook in _after_steps:
        hook(None, (), {})
