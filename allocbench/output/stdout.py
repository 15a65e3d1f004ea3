# SPDX-License-Identifier: Apache-2.0
"""Standard output in any encoding, on a full disk, or closed early."""

from __future__ import annotations

import codecs
import errno
import os
import sys
from io import TextIOWrapper

_SPELLED = {
    "…": "~",
    "·": ".",
    "▒": "+",
    "█": "#",
    "─": "-",
    "━": "-",
    "│": "|",
    "╭": "+",
    "╮": "+",
    "╰": "+",
    "╯": "+",
    "•": "*",
} | dict(zip("▁▂▃▄▅▆▇", ".,:-=+*", strict=True))
"""Replacements in ASCII for the characters of tables and pictures."""
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def accept_any_text() -> None:
    """Replace characters that the encoding of standard output or error cannot represent."""
    codecs.register_error("allocbench.spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="allocbench.spelled")


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(_SPELLED.get(letter, "?") for letter in letters), error.end


def failure(error: OSError) -> str | None:
    """The message for a failed write to standard output; None for an error of a file."""
    if error.filename is not None or error.errno not in _WRITE_ERRORS:
        return None
    return f"standard output: cannot write: {error.strerror}"


def abandon() -> None:
    """Discard pending output, so that the end of the process does not try to write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
