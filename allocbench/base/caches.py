# SPDX-License-Identifier: Apache-2.0
"""The cache folder, and the removal of its oldest entries."""

import os
import shutil
from contextlib import suppress
from pathlib import Path


def cache() -> Path:
    """The folder of this program in the user's cache; it may not exist yet."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "allocbench"


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
