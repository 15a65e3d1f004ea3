# SPDX-License-Identifier: Apache-2.0
"""Found first by the Python processes that `allocbench run` starts; then the program's own runs."""

import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


class _Files:
    """Finds this allocbench, and nothing else of the environment that it is installed in."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_file_location(name, self._files[name]) if name in self._files else None


if _files := os.environ.get("ALLOCBENCH_FILES"):
    sys.meta_path.insert(0, _Files(json.loads(_files)))

    from allocbench import running

    running.await_torch()

sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
if (_spec := PathFinder.find_spec(__name__, sys.path)) and _spec.loader:
    sys.modules[__name__] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
