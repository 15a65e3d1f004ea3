# SPDX-License-Identifier: Apache-2.0
"""Hooks: files that every Python of another program runs around its import of torch.

A hook file may define

- `before_torch(package: Path)`, called before torch's own code runs; `package` is torch's folder;
- `after_torch(torch: ModuleType)`, called when torch has been imported;
- `AFTER: dict[str, Callable[[ModuleType], None]]`, functions to call when other modules have been
  imported, by the name of the module;
- `REFUSED: dict[str, str]`, packages whose import fails, with the message of the ImportError.

It runs in the program's installation of Python, where only the standard library is certain.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parent / "hook"
_VARIABLE = "ALLOCBENCH_HOOKS"


def hook_variables(file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that add a hook to the environment of a program, after the hooks it has."""
    files = json.loads(environment.get(_VARIABLE, "[]"))
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    others = [entry for entry in path if entry and entry != str(_FOLDER)]
    return {
        _VARIABLE: json.dumps([*files, *({str(file)} - set(files))]),
        "PYTHONPATH": os.pathsep.join([str(_FOLDER), *others]),
    }
