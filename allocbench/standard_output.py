# SPDX-License-Identifier: Apache-2.0
"""Standard output as users have it: in any encoding, on a full disk, closed early."""

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
"""Letters of tables and pictures, each as one that every encoding has."""
_OUT_OF_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def accept_any_text() -> None:
    """Never fail on a letter that the encoding of standard output or error does not have."""
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
    """What to tell of an error of writing to standard output; None for an error of a file."""
    if error.filename is not None or error.errno not in _OUT_OF_ROOM:
        return None
    return f"standard output: cannot write: {error.strerror}"


def abandon() -> None:
    """Drop what is still to be written, so that the end of the process does not try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
