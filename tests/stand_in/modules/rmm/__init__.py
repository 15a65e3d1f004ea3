# SPDX-License-Identifier: Apache-2.0
"""The part of RMM through which it gets memory."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


class Stream:
    """A stream that tells its handle."""

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


current: Any = None
"""The current resource."""


def _set(resource: CallbackMemoryResource) -> None:
    global current
    current = resource


mr: Any = types.SimpleNamespace(
    CallbackMemoryResource=CallbackMemoryResource, set_current_device_resource=_set
)
pylibrmm: Any = types.SimpleNamespace(stream=types.SimpleNamespace(Stream=Stream))
