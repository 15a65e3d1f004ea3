# SPDX-License-Identifier: Apache-2.0
"""The cache folder, and the removal of its oldest entries."""

import atexit
import functools
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from allocbench.base.errors import UserError

_PRIVATE = 0o700


def cache() -> Path:
    """The folder of this program in the user's cache; a new one is for this user alone.

    Where it cannot be written to, a temporary folder of this process. Raises UserError for a
    relative XDG_CACHE_HOME.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    if named and not os.path.isabs(named):
        raise UserError(f"XDG_CACHE_HOME={named}: not an absolute path")
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home folder
        folder = (Path(named) if named else Path.home() / ".cache") / "allocbench"
        folder.mkdir(_PRIVATE, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return _temporary()


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="allocbench-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def keep_newest(folder: Path, most: int) -> None:
    """Remove the oldest entries of a folder, except for a number of recent ones."""
    times = dict[Path, float]()
    for path in folder.glob("[!.]*"):
        with suppress(OSError):  # another process has removed it
            times[path] = path.stat().st_mtime
    for path in sorted(times, key=lambda path: times[path], reverse=True)[most:]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
