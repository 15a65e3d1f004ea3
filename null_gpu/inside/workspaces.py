# SPDX-License-Identifier: Apache-2.0
"""The modelled workspaces that a program allocated, added to PyTorch's memory snapshots.

Only the standard library may be used here.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from types import ModuleType
from typing import Any

KEY = "allocbench_workspaces"
"""Of a snapshot; read by `importers/snapshot_workspaces.py`."""


class _Use(ctypes.Structure):
    """WorkspaceUse of `libraries/workspaces.hpp`."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("time_ns", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("rule", ctypes.c_int32),
    )


class Workspaces:
    """What NVIDIA's libraries have asked for in this process."""

    def __init__(self, core: ctypes.CDLL) -> None:
        self._core = core
        core.null_workspace_rules.restype = ctypes.c_char_p
        core.null_workspaces.restype = core.null_workspace_bound.restype = ctypes.c_uint64
        core.null_workspaces_forgone.restype = ctypes.c_uint64
        self._rules = core.null_workspace_rules().decode().split()

    def watch(self, torch: ModuleType) -> None:
        """Add the workspaces to each memory snapshot from now on."""
        memory = torch.cuda.memory
        original = memory._snapshot

        @functools.wraps(original)
        def snapshot(*arguments: Any, **options: Any) -> Any:
            taken = original(*arguments, **options)
            if isinstance(taken, dict) and (uses := self.uses()):
                taken[KEY] = uses
            return taken

        memory._snapshot = snapshot

    def uses(self) -> list[tuple[int, int, int, int, str]]:
        """Device, time in ns since 1970, address (0: unknown), bytes and rule of each workspace."""
        count = self._core.null_workspaces(None, ctypes.c_uint64(0))
        room = (_Use * count)()
        self._core.null_workspaces(room, ctypes.c_uint64(count))
        return [
            (use.device, use.time_ns, use.address, use.bytes, self._rules[use.rule]) for use in room
        ]

    def unknown(self) -> Counter[str]:
        """How many requests got 0 bytes, by rule."""
        counts = (ctypes.c_uint64 * len(self._rules))()
        self._core.null_workspaces_unknown(counts)
        return +Counter(dict(zip(self._rules, counts, strict=True)))

    def has_convolutions(self) -> bool:
        """Whether a convolution was computed by cuDNN."""
        rule = "convolution_workspace"
        return bool(self.unknown()[rule]) or any(use[-1] == rule for use in self.uses())

    def forgone(self) -> int:
        """How many convolutions did without their workspace, such as for lack of memory."""
        return int(self._core.null_workspaces_forgone())

    def bound(self) -> int:
        """Bytes that the largest of these requests may ask for on a real GPU; 0: nothing known."""
        return int(self._core.null_workspace_bound())
