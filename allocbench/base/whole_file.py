# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import BinaryIO

_SHOWN = 50  # characters of a name, of up to 4 bytes each; a file system allows 255 bytes
_numbers = count()


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary stream to a file that appears when the block ends without an error.

    A regular file is replaced in one rename: readers never see half of it, and a failed write
    leaves the old file. A pipe or a device cannot be replaced, so it is written to directly.
    Raises OSError when the file cannot be written.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as sink:
            yield sink
        return
    unique = f"{os.getpid()}-{next(_numbers)}"
    partial = target.with_name(f".{target.name[:_SHOWN]}.{unique}.partial")
    try:
        with partial.open("wb") as sink:
            yield sink
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
