# SPDX-License-Identifier: Apache-2.0
"""Sizes that a program gives as tensors on the GPU, as in `torch.arange(lengths.max())`.

PyTorch reads them from the GPU. If the host knows them, the function gets numbers instead.
"""

from __future__ import annotations

from typing import Any


def know_sizes(torch: Any, names: Any, functions: Any, follower: Any) -> None:
    """Replace the functions and methods that have sizes among their arguments.

    names: the module null_names. functions, follower: `Functions` and `Follower` of the modules
    beside this one.
    """

    def number(value: Any) -> Any:
        if type(value) is torch.Tensor and value.is_cuda and not value.dim():
            known = follower.host_copy(value)
            return value if known is None else known.item()
        if type(value) in (list, tuple):
            return type(value)(map(number, value))
        return value

    def replaced(first: int) -> Any:
        def replaced_by(_name: str, original: Any) -> Any:
            def sized(*arguments: Any, **options: Any) -> Any:
                numbers = map(number, arguments[first:])
                options = {name: number(value) for name, value in options.items()}
                return original(*arguments[:first], *numbers, **options)

            return functions.instead_of(original)(sized)

        return replaced_by

    for listed, first in ((names.SIZED, 0), (names.SIZED_FROM, 1)):
        for name in listed.split():
            functions.replace(name, replaced(first))
