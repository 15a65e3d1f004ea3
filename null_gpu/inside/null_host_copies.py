# SPDX-License-Identifier: Apache-2.0
"""Host copies: the values of small tensors on a null GPU that the host can know.

A host copy belongs to the storage of a tensor, so views share it. It is valid as long as nothing
else has written to this memory. PyTorch counts changes in place. Kernels that are not PyTorch's and
captured graphs write what nobody knows, so they end all host copies. Where PyTorch does not count,
`null_writes` ends them.
"""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

_COPY = "_allocbench_host_copy"
"""An attribute of storages: the host's storage, the version of the tensors, and of all memory."""
_NEVER = ()
MOST = 1 << 20
"""Elements of the largest tensor with a host copy, if they are whole numbers or truth values."""
MOST_REAL = 1 << 16
"""Elements of the largest tensor with a host copy, if they are real numbers.

Those that were drawn from an interval may be as many as MOST, because they choose edges and tokens.
"""
_MOST_BYTES = 16 * MOST


class HostCopies:
    """The host copies of one process."""

    def __init__(self, torch: ModuleType, core: ctypes.CDLL) -> None:
        self._torch, self._usual = torch, torch.Tensor
        self._set = torch.Tensor.set_  # before it is replaced
        self._hidden_writes = ctypes.c_uint64.in_dll(core, "null_hidden_writes")

    def end(self) -> None:
        """From now on, nothing is known."""
        self._usual = None

    def is_small(self, tensor: Any, most_real: int = MOST_REAL) -> bool:
        """Whether it is a plain tensor, on any device, that is small enough for a host copy."""
        if type(tensor) is not self._usual or tensor.layout is not self._torch.strided:
            return False
        if tensor.is_complex() or tensor.is_nested:
            return False
        return bool(tensor.numel() <= (most_real if tensor.is_floating_point() else MOST))

    def may_have(self, tensor: Any, most_real: int = MOST_REAL) -> bool:
        """Whether a tensor on the GPU can have a host copy.

        A parameter, or what depends on one, has none. Neither has a tensor of inference mode, whose
        changes PyTorch does not count.
        """
        is_small = self.is_small(tensor, most_real)
        return is_small and not (tensor.requires_grad or tensor.is_inference())

    def knows(self, tensor: Any) -> bool:
        """Whether there is a valid host copy of a tensor."""
        return self._memory(tensor) is not None

    def get(self, tensor: Any) -> Any:
        """A tensor on the host that shares the memory of the host copy; None: not known."""
        if (memory := self._memory(tensor)) is None:
            return None
        place = (tensor.storage_offset(), tensor.size(), tensor.stride())
        return self._set(self._torch.empty(0, dtype=tensor.dtype, device="cpu"), memory, *place)

    def keep(self, tensor: Any, values: Any) -> None:
        """Note the values of a tensor on the GPU that nothing has a view of yet.

        If the memory already has a host copy, only the part that is the tensor's changes.
        """
        there = tensor.untyped_storage()  # larger than the tensor if a function estimates its size
        if there.nbytes() > _MOST_BYTES or values.shape != tensor.shape:
            return
        if getattr(there, _COPY, None) == _NEVER:
            return
        if self.knows(tensor):
            self.get(tensor).copy_(values.detach())
            return
        storage = self._torch.UntypedStorage(there.nbytes(), device="cpu")
        setattr(there, _COPY, (storage, *self._versions(tensor)))
        self.get(tensor).copy_(values.detach())

    def renew(self, tensor: Any) -> None:
        """Note that the host copy has been changed like the tensor."""
        there = tensor.untyped_storage()
        if note := getattr(there, _COPY, None):
            setattr(there, _COPY, (note[0], *self._versions(tensor)))

    def forget(self, tensor_or_storage: Any) -> None:
        """Note that the values in this memory have changed."""
        there = self._quiet_storage(tensor_or_storage)
        if getattr(there, _COPY, None):
            delattr(there, _COPY)

    def never(self, tensor_or_storage: Any) -> None:
        """From now on, the values in this memory may change at any time."""
        there = self._quiet_storage(tensor_or_storage)
        if there is not None and there.is_cuda:
            setattr(there, _COPY, _NEVER)

    def _quiet_storage(self, tensor_or_storage: Any) -> Any:
        """The storage, without a call that modes and classes with `__torch_function__` see."""
        with self._torch._C.DisableTorchFunction():
            return _storage(tensor_or_storage)

    def _memory(self, tensor: Any) -> Any:
        """The storage of a valid host copy, or None."""
        if type(tensor) is not self._usual or tensor.numel() > MOST:
            return None
        there = _storage(tensor)
        if not (note := getattr(there, _COPY, None)) or not self.may_have(tensor, MOST):
            return None
        memory, *versions = note
        is_same = versions == self._versions(tensor) and memory.nbytes() == there.nbytes()
        return memory if is_same else None

    def _versions(self, tensor: Any) -> list[int]:
        return [tensor._version, self._hidden_writes.value]


def _storage(tensor_or_storage: Any) -> Any:
    """The storage of a tensor; a storage is returned as it is.

    None for a tensor that has no storage, such as a sparse one.
    """
    try:
        storage = getattr(tensor_or_storage, "untyped_storage", None)
        return tensor_or_storage if storage is None else storage()
    except (NotImplementedError, RuntimeError):  # of sparse tensors, or within a transform
        return None
