# SPDX-License-Identifier: Apache-2.0
"""The hook of `allocbench record` for files: which files a program reads.

Python announces each file that it opens, imports or loads. A process writes a line for the first
time that it reads a file: its path, size, and times in ns of its last change (content; content or
status) as JSON, with null for a file that does not exist. Lines are written at once, because a
process may end in any way. A module that cannot be found is a file that does not exist. Files that
a process writes first, /proc, /sys and /dev are left out. Errors never reach the program. Only the
standard library may be used.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_FOLDER = os.environ["ALLOCBENCH_RECORD"]
_LEFT_OUT = ("/proc/", "/sys/", "/dev/", _FOLDER)
_CREATING = os.O_WRONLY | os.O_CREAT
"""A file that is opened to read and write, such as a memory map, is also read."""
_MOST = 10_000  # files of a process
_seen: set[str] = set()


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Called for each of Python's audit events, so it must be quick."""
    if event not in ("open", "import", "ctypes.dlopen"):
        return
    try:
        file = arguments[1] if event == "import" else arguments[0]
        if file is None or isinstance(file, int) or (event == "ctypes.dlopen" and "/" not in file):
            return
        _note(file, written=event == "open" and bool(arguments[2] & _CREATING))
    except Exception:
        return


def _note(file: Any, written: bool = False) -> None:
    path = os.path.abspath(os.fsdecode(file))
    folder, name = os.path.split(path)
    if name.endswith(".pyc") and os.path.basename(folder) == "__pycache__":
        path = os.path.join(os.path.dirname(folder), name.partition(".")[0] + ".py")
    if path in _seen or len(_seen) >= _MOST or path.startswith(_LEFT_OUT):
        return
    _seen.add(path)
    if written:
        return
    try:
        found = os.stat(path)
        status = [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    except OSError:
        status = None
    # Opened for each line: the program may close all files, and it may be forked.
    into = os.open(f"{_FOLDER}/{os.getpid()}.opened", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(into, json.dumps([path, status]).encode() + b"\n")
    finally:
        os.close(into)


class _NotFound:
    """The last finder, which is asked for modules that no other one has found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Note the files in which the module could have been."""
        try:
            for folder in sys.path if path is None else path:
                for end in (".py", "/__init__.py"):
                    _note(os.path.join(folder, name.rpartition(".")[2] + end))
        except Exception:
            return


def after_torch(torch: ModuleType) -> None:
    """Keep torch.compile from looking at these functions."""
    try:
        for function in (_on_event, _note, _NotFound.find_spec):
            torch._C._dynamo.eval_frame.skip_code(function.__code__)
    except Exception:
        return


sys.meta_path.append(_NotFound())
sys.addaudithook(_on_event)
