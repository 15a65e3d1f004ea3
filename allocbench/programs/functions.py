# SPDX-License-Identifier: Apache-2.0
"""A Python function as a program: it is called in a process of its own, by this Python.

It needs a new process because NVIDIA's libraries cannot be replaced once PyTorch is imported.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

from allocbench.base.caches import cache, keep_newest
from allocbench.base.extra import needs_extra
from allocbench.base.whole_file import whole_file
from allocbench.errors import UsageError
from allocbench.programs import call
from allocbench.programs.program import ProgramSettings, ProgramWorkload

_MOST = 100  # files


def program_of(function: Callable[[], object], settings: ProgramSettings) -> ProgramWorkload:
    """The program that calls a function, copied by cloudpickle with everything that it refers to.

    Raises UsageError for a function that cannot be copied, and ModuleNotFoundError without
    cloudpickle.
    """
    with needs_extra("null"):
        import cloudpickle
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        data = pickle.dumps(sys.path) + cloudpickle.dumps(function)
    except (TypeError, ValueError, AttributeError, pickle.PicklingError) as error:
        raise UsageError(f"{name} cannot be run in a process of its own: {error}") from error
    folder = cache() / "functions"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(data).hexdigest()[:24]}.pickle"
    with whole_file(path) as file:
        file.write(data)
    keep_newest(folder, _MOST)
    called = name.rpartition(".")[2].strip("<>")
    return ProgramWorkload((sys.executable, str(Path(call.__file__)), str(path)), settings, called)
