# SPDX-License-Identifier: Apache-2.0
"""Host copies: the values of small tensors on a null GPU that the host can know.

A host copy belongs to the storage of a tensor, so views share it. It is valid as long as no
operation has changed the tensor in place. PyTorch counts these changes, except for tensors that
were created in inference mode.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

_COPY = "_allocbench_host_copy"
"""An attribute of storages: the host's storage, and the version of the tensors."""
MOST = 1 << 20
"""Elements of the largest tensor with a host copy, if they are whole numbers or truth values."""
MOST_REAL = 1 << 16
"""Elements of the largest tensor with a host copy, if they are real numbers."""
_MOST_BYTES = 16 * MOST


class HostCopies:
    """The host copies of one process."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._kinds = (torch.Tensor, torch.nn.Parameter)

    def may_have(self, tensor: Any) -> bool:
        """Whether it is a plain tensor that is small enough for a host copy."""
        if type(tensor) not in self._kinds or tensor.layout is not self._torch.strided:
            return False
        if tensor.is_complex() or tensor.is_nested:
            return False
        return bool(tensor.numel() <= (MOST_REAL if tensor.is_floating_point() else MOST))

    def knows(self, tensor: Any) -> bool:
        """Whether there is a valid host copy of a tensor."""
        return self.may_have(tensor) and self.get(tensor) is not None

    def get(self, tensor: Any) -> Any:
        """A tensor on the host that shares the memory of the host copy; None: not known."""
        there = tensor.untyped_storage()
        storage, version = getattr(there, _COPY, (None, None))
        if storage is None or version != _version(tensor) or storage.nbytes() != there.nbytes():
            return None
        place = (tensor.storage_offset(), tensor.size(), tensor.stride())
        return self._torch.empty(0, dtype=tensor.dtype, device="cpu").set_(storage, *place)

    def keep(self, tensor: Any, values: Any) -> None:
        """Note the values of a tensor on the GPU that nothing has a view of yet."""
        there = tensor.untyped_storage()  # larger than the tensor if a function estimates its size
        if there.nbytes() > _MOST_BYTES or values.shape != tensor.shape:
            return
        storage = self._torch.UntypedStorage(there.nbytes(), device="cpu")
        setattr(there, _COPY, (storage, _version(tensor)))
        self.get(tensor).copy_(values)

    def renew(self, tensor: Any) -> None:
        """Note that the host copy has been changed like the tensor."""
        there = tensor.untyped_storage()
        setattr(there, _COPY, (getattr(there, _COPY)[0], _version(tensor)))

    def forget(self, tensor: Any) -> None:
        """Note that the values of a tensor have changed."""
        there = tensor.untyped_storage()
        if hasattr(there, _COPY):
            delattr(there, _COPY)


def _version(tensor: Any) -> int:
    """How often a tensor was changed in place: PyTorch does not count in inference mode."""
    return -1 if tensor.is_inference() else int(tensor._version)
