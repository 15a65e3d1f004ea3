# SPDX-License-Identifier: Apache-2.0
"""An optimizer's count of steps reads as 1 on a null GPU.

An optimizer loaded from a checkpoint with `map_location="cuda"` keeps this count on the GPU. Adam
and others divide by 1 - beta ** count, which would be zero for 0.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def count_from_one(optimizer: ModuleType) -> None:
    """Change `torch.optim.optimizer` before the optimizers import its function."""
    original = getattr(optimizer, "_get_value", None)
    if original is None:
        return
    torch = optimizer.torch

    def _get_value(number: Any) -> Any:
        value = original(number)
        on_gpu = isinstance(number, torch.Tensor) and number.is_cuda
        if not on_gpu or isinstance(value, torch.Tensor):  # as it is while torch.compile traces
            return value
        return value or type(value)(1)

    # TorchScript compiles the original instead (see torch.jit.script_if_tracing).
    _get_value.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    _get_value.__original_fn = original  # type: ignore[attr-defined]
    optimizer._get_value = _get_value  # type: ignore[attr-defined]
