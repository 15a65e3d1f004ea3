# SPDX-License-Identifier: Apache-2.0
"""Values of small tensors on the GPU that the host knows, because it computed them as well.

The native library keeps them by address (see `native/values.hpp`). So views of a tensor share them,
and whatever reads the memory gets them.
"""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

MOST = 1 << 20
"""Elements of the largest tensor that is followed, if they are whole numbers or truth values."""
MOST_REAL = 1 << 16
"""Elements of the largest tensor that is followed, if they are real numbers.

Those that were drawn from an interval may be as many as MOST, because they choose edges and tokens.
"""


class HostCopies:
    """The known values of one process."""

    def __init__(self, torch: ModuleType, core: ctypes.CDLL) -> None:
        self._torch, self._core = torch, core

    def is_small(self, tensor: Any, most_real: int = MOST_REAL) -> bool:
        """Whether a tensor, on any device, has few elements, of a type that is followed."""
        if tensor.layout is not self._torch.strided or tensor.is_complex() or tensor.is_quantized:
            return False
        return bool(tensor.numel() <= (most_real if tensor.is_floating_point() else MOST))

    def may_have(self, tensor: Any, most_real: int = MOST_REAL) -> bool:
        """Whether a tensor on the GPU is followed: no parameter, nor what depends on one."""
        return tensor.is_cuda and self.is_small(tensor, most_real) and not tensor.requires_grad

    def knows(self, tensor: Any) -> bool:
        """Whether the values of a tensor on the GPU are known."""
        return self.get(tensor) is not None

    def get(self, tensor: Any) -> Any:
        """A tensor on the host with the values of one on the GPU; None: not known."""
        if not self.may_have(tensor, MOST):
            return None
        torch, shape, strides = self._torch, tensor.shape, tensor.stride()
        if not tensor.numel():
            return torch.empty(shape, dtype=tensor.dtype, device="cpu")
        span = _span(shape, strides)
        if span > 2 * MOST:
            return None
        values = torch.empty(span, dtype=tensor.dtype, device="cpu")
        if not self._read(tensor, values):
            return None
        return values.as_strided(shape, strides)

    def keep(self, tensor: Any, values: Any) -> None:
        """Note the values of a tensor on the GPU."""
        if values.shape != tensor.shape:
            self.forget(tensor)
            return
        if not tensor.numel():
            return
        torch, shape, strides = self._torch, tensor.shape, tensor.stride()
        span, values = _span(shape, strides), values.detach()
        host = torch.empty(span, dtype=tensor.dtype, device="cpu")
        if span != tensor.numel() and not self._read(tensor, host):
            self.forget(tensor)  # the elements have others between them, which are not known
            return
        host.as_strided(shape, strides).copy_(values)
        self._core.null_follow(
            ctypes.c_uint64(tensor.data_ptr()), ctypes.c_void_p(host.data_ptr()), _bytes(host)
        )

    def forget(self, tensor: Any) -> None:
        """Note that the values in the memory of a tensor are not known any more."""
        if tensor.is_cuda:
            there = tensor.untyped_storage()
            begin, size = ctypes.c_uint64(there.data_ptr()), ctypes.c_uint64(there.nbytes())
            self._core.null_forget(begin, size)

    def _read(self, tensor: Any, host: Any) -> bool:
        """Copy what is known from the first element of a tensor on; False: not all of it is."""
        begin = ctypes.c_uint64(tensor.data_ptr())
        return bool(self._core.null_known(begin, ctypes.c_void_p(host.data_ptr()), _bytes(host)))


def _span(shape: Any, strides: Any) -> int:
    """How many elements lie from the first one of a tensor to its last one."""
    steps = zip(shape, strides, strict=True)
    return 1 + sum(int((size - 1) * stride) for size, stride in steps)


def _bytes(tensor: Any) -> ctypes.c_uint64:
    return ctypes.c_uint64(tensor.numel() * tensor.element_size())
