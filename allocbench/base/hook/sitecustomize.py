# SPDX-License-Identifier: Apache-2.0
"""Run at the start of every Python of a program that allocbench records or runs.

Python imports a module of this name when it starts, and this folder is first on its path. The
variable ALLOCBENCH_HOOKS lists hook files (see `allocbench.base.children`). Only the standard
library may be used here, because the program has its own installation of everything else.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).parent.resolve()


class HookFinder:
    """Finds modules with the finders that follow, and calls the hooks around their execution."""

    def __init__(self, hooks: Sequence[ModuleType]) -> None:
        self._hooks, self._searching = hooks, False
        self._refused: dict[str, str] = {}
        self._after: dict[str, Callable[[ModuleType], None]] = {}
        for hook in hooks:
            self._refused |= getattr(hook, "REFUSED", {})
            self._after |= getattr(hook, "AFTER", {})

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module that the hooks name, with a changed loader; None for all others."""
        if self._searching or name not in {"torch", *self._refused, *self._after}:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is None or spec.loader is None or spec.origin is None:
            return spec
        package, execute = Path(spec.origin).parent, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if name in self._refused:
                raise ImportError(self._refused[name])
            if name in self._after:
                execute(module)
                self._after[name](module)
                return
            self._call("before_torch", package)
            execute(module)
            self._call("after_torch", module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _call(self, function: str, argument: object) -> None:
        """Call a function of each hook: the first hook is called first before, and last after."""
        order = self._hooks if function == "before_torch" else self._hooks[::-1]
        for hook in order:
            if hasattr(hook, function):
                getattr(hook, function)(argument)


def load(file: str) -> ModuleType:
    """Import a file that is not on the path of modules; `__init__.py` is that of a package."""
    path = Path(file)
    is_package = path.stem == "__init__"
    name = f"allocbench_{path.parent.name if is_package else path.stem}"
    folders = [str(path.parent)] if is_package else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_the_sitecustomize_of_the_program() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if files := json.loads(os.environ.get("ALLOCBENCH_HOOKS", "[]")):
    sys.meta_path.insert(0, HookFinder([load(file) for file in files]))
run_the_sitecustomize_of_the_program()
