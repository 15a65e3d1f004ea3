# SPDX-License-Identifier: Apache-2.0
"""The hook of `allocbench run`: makes PyTorch use the allocator as soon as torch is imported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


class _Files:
    """Finds allocbench itself, and nothing else of the environment that it is installed in."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_file_location(name, self._files[name]) if name in self._files else None


sys.meta_path.insert(0, _Files(json.loads(os.environ["ALLOCBENCH_FILES"])))


def after_torch(torch: ModuleType) -> None:
    """Choose the allocator."""
    from allocbench.programs import with_allocator

    with_allocator.choose()
