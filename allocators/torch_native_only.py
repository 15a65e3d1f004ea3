# SPDX-License-Identifier: Apache-2.0
"""Features that PyTorch supports only with its own allocator.

With any pluggable allocator, PyTorch raises an error that advises to file an issue. Here the error
says why, and the feature is stored, so that `allocbench run` can name it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_TREES = 'CUDA graph trees (torch.compile, mode="reduce-overhead")'
_POOLS = "torch.cuda.MemPool"
_HISTORY = "the memory history (torch.cuda.memory._record_memory_history)"
_FUNCTIONS = {
    ("_C", "_cuda_beginAllocateCurrentThreadToPool"): _TREES,
    ("_C", "_cuda_checkPoolLiveAllocations"): _TREES,
    ("_C", "_cuda_getCheckpointState"): _TREES,
    ("_C", "_cuda_setCheckpointPoolState"): _TREES,
    ("_C", "_cuda_memorySnapshot"): "memory snapshots (torch.cuda.memory_snapshot)",
    ("_C", "_cuda_record_memory_history"): _HISTORY,
    ("_C", "_cuda_isHistoryEnabled"): _HISTORY,
    ("cuda.MemPool", "__init__"): _POOLS,
    ("UntypedStorage", "_share_cuda_"): "sharing CUDA tensors between processes",
}
FEATURES = tuple(dict.fromkeys(_FUNCTIONS.values()))
"""Names of the features."""

met: list[str] = []
"""The features that this process tried to use, in order."""


def install(spec: str) -> None:
    """Make the error of a feature that PyTorch does not support here give the reason."""
    for (path, name), feature in _FUNCTIONS.items():
        owner: Any = torch
        for part in path.split("."):
            owner = getattr(owner, part, None)
        if owner is not None and hasattr(owner, name):
            setattr(owner, name, _explaining(getattr(owner, name), feature, spec))


def _explaining(original: Any, feature: str, spec: str) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return original(*arguments, **options)
        except RuntimeError as error:
            if "does not yet support" not in str(error):
                raise
            if feature not in met:
                met.append(feature)
            raise RuntimeError(
                f"{feature}: PyTorch supports this only with its own allocator, and this program's"
                f" memory comes from {spec}"
            ) from error

    return call
