# SPDX-License-Identifier: Apache-2.0
"""The processes of a program that will write what they recorded.

A process that ends often kills those that it started. When allocbench ends a program, it therefore
waits until they have written.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

RUNNING = ".running"
"""Ends the name of a file, before which is the number of a process that has not yet written."""
_AGAIN, _LONGEST = 0.05, 120.0  # seconds


class Running:
    """The file of this process in a folder, and those of the others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self) -> float:
        """From now on, others wait for this process. Gives the time of the first one's call."""
        self._file().touch()
        first = self._folder / "first"
        with suppress(FileExistsError):
            first.touch(exist_ok=False)
        return first.stat().st_mtime

    def end(self) -> None:
        """This process has written."""
        self._file().unlink(missing_ok=True)

    def wait_for_children(self) -> None:
        """Wait until all processes that descend from this one have written or are gone."""
        last = time.monotonic() + _LONGEST
        while any(map(self._descends, self._folder.glob(f"*{RUNNING}"))):
            if time.monotonic() > last:
                return
            time.sleep(_AGAIN)

    def _file(self) -> Path:
        return self._folder / f"{os.getpid()}{RUNNING}"

    def _descends(self, file: Path) -> bool:
        process, here = _parent(int(file.stem)), os.getpid()
        while process > 1 and process != here:
            process = _parent(process)
        return process == here


def _parent(process: int) -> int:
    """The parent of a process; 0 if it has none or has ended."""
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    state, parent = told.rpartition(")")[2].split()[:2]
    return 0 if state == "Z" else int(parent)
