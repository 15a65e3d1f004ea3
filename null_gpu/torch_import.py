# SPDX-License-Identifier: Apache-2.0
"""Lets this process import a CUDA build of PyTorch that lacks NVIDIA's libraries.

It sees no GPU: what needs one is run in processes of its own. Nothing changes for another PyTorch.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocbench.null_gpu.torch_build import TorchBuild

_CARD = "null:h200"
_kept: list[Any] = []
"""What the libraries in use belong to."""


def allow() -> None:
    """From now on, replace missing libraries when torch is imported, except on a null GPU."""
    from_here = any(isinstance(finder, _BeforeTorch) for finder in sys.meta_path)
    if "torch" not in sys.modules and "ALLOCBENCH_NULL" not in os.environ and not from_here:
        sys.meta_path.insert(0, _BeforeTorch())


class _BeforeTorch:
    """Finds nothing; called before the finder that finds torch."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Load the replacements if torch is looked for."""
        if name == "torch" and self in sys.meta_path:
            sys.meta_path.remove(self)
            with suppress(Exception, SystemExit):  # the error of torch itself says more
                _load()


def _load() -> None:
    from allocbench.null_gpu import launch, torch_build
    from allocbench.null_gpu.device import read
    from allocbench.null_gpu.inside import Process

    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return
    package = Path(spec.origin).parent
    if _has_libraries(torch_build.find(package)):
        return
    with tempfile.TemporaryDirectory(prefix="allocbench-null-") as folder:
        told = json.loads(launch.environment(read(_CARD), folder)[launch.VARIABLE])
        told["settings"]["count"] = 0
        _kept.append(Process(told, package))


def _has_libraries(build: TorchBuild) -> bool:
    """Whether torch will find NVIDIA's libraries in packages or on the system.

    The one that systems have least often is looked for first, because a library that is found on
    the system is then loaded.
    """
    cuda = build.cuda // 1000
    names = (f"libcudnn.so.{build.cudnn // 10000}", f"libcublas.so.{cuda}", f"libcudart.so.{cuda}")
    return all(_is_there(name) for name in names)


def _is_there(name: str) -> bool:
    if any(any(Path(entry).glob(f"nvidia/*/lib/{name}")) for entry in sys.path):
        return True
    with suppress(OSError):
        ctypes.CDLL(name)
        return True
    return False
