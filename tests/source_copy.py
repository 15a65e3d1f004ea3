# SPDX-License-Identifier: Apache-2.0
"""A copy of the working tree: the files that git tracks, and new ones that it does not ignore."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def update(target: Path) -> None:
    """Make the copy in a folder equal to the working tree; files that are equal keep their times.

    Sources that the working tree does not have are deleted; files that were built there stay.
    """
    line = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and os.path.lexists(ROOT / name)}
    for name in names:
        origin, copy = ROOT / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            copy.unlink(missing_ok=True)
            copy.symlink_to(os.readlink(origin))
        elif not copy.exists() or origin.read_bytes() != copy.read_bytes():
            shutil.copy(origin, copy)
    for file in target.rglob("*"):
        is_source = file.suffix in (".py", ".cpp", ".hpp") and not file.is_symlink()
        if is_source and str(file.relative_to(target)) not in names:
            file.unlink()
