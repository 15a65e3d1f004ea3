# SPDX-License-Identifier: Apache-2.0
"""Lengths that a function of PyTorch copies to the host itself.

The same copy is made here before, so that the function sees the lengths if the host knows them.
"""

from __future__ import annotations

from typing import Any

_FIRST, _LAST = 2, 4


def copy_lengths(torch: Any, functions: Any) -> None:
    """Replace `torch.ctc_loss`. functions: `Functions` of null_functions."""

    def replaced(_name: str, original: Any) -> Any:
        def ctc_loss(*arguments: Any, **options: Any) -> Any:
            lengths = arguments[_FIRST:_LAST]
            on_gpu = all(isinstance(value, torch.Tensor) and value.is_cuda for value in lengths)
            if len(lengths) < _LAST - _FIRST or not on_gpu or arguments[1].dtype is torch.int:
                return original(*arguments, **options)  # int: cuDNN may read them on the GPU
            copies = [value.to("cpu", torch.long) for value in lengths]
            return original(*arguments[:_FIRST], *copies, *arguments[_LAST:], **options)

        return functions.instead_of(original)(ctc_loss)

    functions.replace("ctc_loss", replaced)
