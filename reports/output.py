# SPDX-License-Identifier: Apache-2.0
"""Where a report goes: a file that appears whole or not at all, or standard output."""

import sys
from pathlib import Path

from allocbench.base.errors import UserError
from allocbench.base.whole_file import whole_file


class ResultError(UserError):
    """Rows that break the schema, or a results or report file that cannot be read or written."""


def write_text(text: str, path: str | Path) -> None:
    """Write text as UTF-8, regardless of the terminal's encoding, as `write_bytes` does."""
    write_bytes(text.encode("utf-8"), path)


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write bytes to `path` as `whole_file` does, or to standard output when it is "-".

    Raises ResultError naming the path.
    """
    if str(path) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    try:
        with whole_file(path) as sink:
            sink.write(data)
    except OSError as error:
        raise ResultError(f"{path}: cannot write: {error.strerror or error}") from error
