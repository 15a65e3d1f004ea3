# SPDX-License-Identifier: Apache-2.0
"""Where a report goes: a file that appears whole or not at all, or standard output."""

import os
import sys
from pathlib import Path


class ResultError(ValueError):
    """Rows that break the schema, or a results or report file that cannot be read or written."""


def write_text(text: str, path: str | Path) -> None:
    """Write UTF-8 text to `path`, or to standard output when it is "-", as `write_bytes` does."""
    if str(path) == "-":
        sys.stdout.write(text)
        return
    write_bytes(text.encode("utf-8"), path)


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write bytes to `path`, or to standard output when it is "-".

    A regular file is replaced in one rename, so a reader never sees half of it and a failed write
    leaves the old one. Raises ResultError naming the path.
    """
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        return
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)  # a pipe or a device is not for replacing
            return
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise ResultError(f"{path}: cannot write: {error.strerror or error}") from error
