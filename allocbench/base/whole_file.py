# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_SHOWN = 50  # characters of a name, of up to 4 bytes each; a file system allows 255 bytes
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o777
_OF_A_NEW_FILE, _PRIVATE = 0o666, 0o600


@contextmanager
def whole_file(path: str | Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a binary stream to a file that appears when the block ends without an error.

    A regular file is replaced in one rename: readers never see half of it, and a failed write
    leaves the old file. The new file has the permissions of the old one; private: only its owner
    may read it. A pipe or a device cannot be replaced, so it is written to directly.
    Raises OSError when the file cannot be written.
    """
    target = Path(path).resolve()
    old = target.stat() if target.exists() else None
    if old is not None and not target.is_file():
        with target.open("wb") as sink:
            yield sink
        return
    mode = _PRIVATE if private else old.st_mode & _PERMISSIONS if old else _OF_A_NEW_FILE
    # Nobody can know the name before, and a link with this name is not followed.
    partial = target.with_name(f".{target.name[:_SHOWN]}.{secrets.token_hex(8)}.partial")
    descriptor = os.open(partial, _FLAGS, mode)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            if old is not None:
                with suppress(OSError):  # a file system without permissions
                    os.fchmod(descriptor, mode)
            yield sink
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
