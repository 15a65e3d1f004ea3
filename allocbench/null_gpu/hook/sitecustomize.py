# SPDX-License-Identifier: Apache-2.0
"""Run by every Python of a program that shall see null GPUs.

Python imports a module of this name at its start; this folder is first on its path. Nothing but
the standard library may be used here, for the program has its own installation. The environment
variable ALLOCBENCH_NULL says what to do (see allocbench.null_gpu.launch).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
REFUSED = ("cupy", "pycuda", "tensorrt")
"""Packages that bring NVIDIA's libraries, or call them past PyTorch."""


class Finder:
    """Finds torch as the finders after it do, and has the null GPU there before it runs."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told, self._looking = told, False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """What the others find for torch, made to load the null GPU; None for all else.

        A package that cannot work can be found, and fails when it is imported.
        """
        if self._looking or (name != "torch" and name not in REFUSED):
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None and spec.origin is not None:
            package, execute = Path(spec.origin).parent, spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                if name in REFUSED:
                    raise ImportError(
                        f"{name} calls NVIDIA's libraries itself, which the null GPU does not have"
                    )
                process = null_process().Process(self._told, package)
                execute(module)
                process.watch(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def run_the_next() -> None:
    """Run the sitecustomize that this one stands before, if there is one."""
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def null_process() -> ModuleType:
    """The module beside this one, which the program's path does not lead to."""
    name = "allocbench_null_process"
    spec = importlib.util.spec_from_file_location(name, HERE / "null_process.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if "ALLOCBENCH_NULL" in os.environ:
    sys.meta_path.insert(0, Finder(json.loads(os.environ["ALLOCBENCH_NULL"])))
run_the_next()
