# SPDX-License-Identifier: Apache-2.0
"""A Python function as a program: it is called in a process of its own, by this Python.

It needs a new process because NVIDIA's libraries cannot be replaced once PyTorch is imported.
"""

import hashlib
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from allocbench.base.errors import needs_extra
from allocbench.base.files import cache
from allocbench.errors import UsageError
from allocbench.programs import call
from allocbench.programs.program import ProgramSettings, ProgramWorkload


@contextmanager
def program_of(
    function: Callable[[], object], settings: ProgramSettings
) -> Iterator[ProgramWorkload]:
    """The program that calls a function, copied by cloudpickle with everything that it refers to.

    The copy can have secrets in it: only this user can read it, and it is removed when the block
    ends. Raises UsageError for a function that cannot be copied, and ModuleNotFoundError without
    cloudpickle.
    """
    with needs_extra("null"):
        import cloudpickle
    name = getattr(function, "__qualname__", type(function).__name__)
    try:
        data = pickle.dumps(sys.path) + cloudpickle.dumps(function)
    except (TypeError, ValueError, AttributeError, pickle.PicklingError) as error:
        raise UsageError(f"{name} cannot be run in a process of its own: {error}") from error
    digest = hashlib.sha256(data).hexdigest()
    called = name.rpartition(".")[2].strip("<>")
    with tempfile.TemporaryDirectory(prefix="function-", dir=cache()) as folder:
        path = Path(folder, "function.pickle")
        path.write_bytes(data)
        command = (sys.executable, "-P", str(Path(call.__file__)), str(path))
        yield ProgramWorkload(command, settings, called, (sys.executable, digest))
