# SPDX-License-Identifier: Apache-2.0
"""Find the class of an allocator written in Python: `module:Class` or `folder/file.py:Class`."""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from allocbench.allocators import _core
from allocbench.allocators._core import SegmentSource, SpecError


class External(Protocol):
    """The methods that such a class must have. Sizes are in bytes; address 0 means no block."""

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block of `size` bytes; 0, None or MemoryError refuses the request."""

    def free(self, address: int) -> None:
        """Free the block at an address that `allocate` returned."""


def find(name: str) -> Callable[[SegmentSource], External]:
    """The class of `module:Class`. If Python finds no such module, it may be a file in this folder.

    Raises SpecError if the class or a method is missing, or if the module cannot be imported.
    """
    module_name, _, class_name = name.rpartition(":")
    if not module_name:
        raise SpecError(f"class '{name}' has no module: write MODULE:CLASS or FILE.py:CLASS")
    try:
        found = getattr(_module(module_name), class_name, None)
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(f"{module_name} raised {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SpecError(f"{module_name} has no class '{class_name}'")
    for method in ("allocate", "free"):
        if not callable(getattr(found, method, None)):
            raise SpecError(f"{name} has no method '{method}'")
    return cast("Callable[[SegmentSource], External]", found)


@functools.cache  # a file is run once
def _module(name: str) -> object:
    file = Path(name if name.endswith(".py") else name.replace(".", "/") + ".py")
    if not name.endswith(".py"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise
            if not file.is_file():
                raise SpecError(f"no module is called '{name}', and there is no {file}") from error
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise SpecError(f"there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_core.find_classes_with(find)
