# SPDX-License-Identifier: Apache-2.0
"""How many elements a sparse tensor on a null GPU has once it is coalesced.

PyTorch reads this from the GPU. Unknown indices count as distinct: the result is as large as it can
be.
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
