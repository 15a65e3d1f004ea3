# SPDX-License-Identifier: Apache-2.0
"""The part of RMM through which it gets memory."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


class Stream:
    """A stream that has a handle."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


class CallbackMemoryResource:
    """Calls Python functions."""

    def __init__(
        self,
        allocate_func: Callable[[int, Stream], int],
        deallocate_func: Callable[[int, int, Stream], None],
    ) -> None:
        self.allocate, self.deallocate = allocate_func, deallocate_func


__version__ = "25.12.00"
current_device = 0
resources: dict[int, CallbackMemoryResource] = {}
"""The resource of each GPU."""

mr: Any = types.SimpleNamespace(
    CallbackMemoryResource=CallbackMemoryResource, set_per_device_resource=resources.__setitem__
)
_cuda: Any = types.SimpleNamespace(gpu=types.SimpleNamespace(getDevice=lambda: current_device))
pylibrmm: Any = types.SimpleNamespace(stream=types.SimpleNamespace(Stream=Stream))
