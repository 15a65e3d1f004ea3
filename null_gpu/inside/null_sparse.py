# SPDX-License-Identifier: Apache-2.0
"""How many elements sparse tensors on a null GPU have.

PyTorch reads this from the GPU, when it coalesces a tensor and when it makes the sparse gradient of
an embedding, which has no padding. Unknown indices count as distinct and as no padding: the result
is as large as it can be.
"""

from __future__ import annotations

from typing import Any


def count_distinct(functions: Any, copies: Any, reads: Any) -> None:
    """Replace `Tensor.coalesce`.

    functions, copies, reads: `Functions`, `HostCopies` and `Reads` of the modules beside this one.
    """

    def replaced(_name: str, original: Any) -> Any:
        def coalesced(tensor: Any) -> Any:
            if not tensor.is_cuda or tensor.is_coalesced():
                return original(tensor)
            indices = tensor._indices()
            if (known := copies.get(indices)) is None:
                with reads.assuming(indices.shape[1]):
                    return original(tensor)
            with reads.answering([known.unique(dim=1).shape[1]]):
                return original(tensor)

        return functions.instead_of(original)(coalesced)

    functions.replace("coalesce", replaced)


_PADDING, _SPARSE = 2, 4
"""Positions of the arguments of `torch.embedding`."""


def count_padding(functions: Any, copies: Any, follower: Any) -> None:
    """Replace `torch.embedding`. follower: `Follower` of the module beside this one."""

    def replaced(_name: str, original: Any) -> Any:
        def embedded(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            if len(arguments) > _SPARSE and arguments[_SPARSE] and arguments[_PADDING] >= 0:
                indices = arguments[1]
                known = copies.get(indices) if indices.is_cuda else None
                used = (
                    indices.numel() if known is None else int((known != arguments[_PADDING]).sum())
                )
                follower.answer_backward(result, [used])
            return result

        return functions.instead_of(original)(embedded)

    functions.replace("embedding", replaced)
