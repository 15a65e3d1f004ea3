# SPDX-License-Identifier: Apache-2.0
"""Standard output in any encoding, on a full disk, closed early, or closed from the start."""

import codecs
import errno
import os
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TextIO

from allocbench.base.text import one_line

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
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def open_closed() -> None:
    """Open the standard streams that the process was started without, as by `>&-`.

    Otherwise the next file that is opened would get the number of one. Output and input still
    fail when they are used; what is written to standard error has nowhere to go.
    """
    modes = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for number, (name, mode) in enumerate(modes.items()):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, mode)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


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
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror
    return f"standard output: cannot write: {reason}"


def abandon(stream: TextIO | None = None) -> None:
    """Discard pending output, so that the end of the process does not try to write it again.

    stream: default: standard output.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def tell_notes(lines: Iterable[str]) -> None:
    """Write notes for the user to standard error, each on one line."""
    for line in lines:
        print(f"note: {one_line(line)}", file=sys.stderr, flush=True)


def tell_error(line: str) -> None:
    """Write a line to standard error, or nowhere if it cannot be written."""
    try:
        print(line, file=sys.stderr)
    except OSError:
        abandon(sys.stderr)
