# SPDX-License-Identifier: Apache-2.0
"""Open input files: regular, compressed with gzip, a pipe, or standard input."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO, cast

from allocbench.workloads.errors import errors_naming
from allocbench.workloads.vocabulary import TraceError

STANDARD_INPUT = "-"
_GZIP = b"\x1f\x8b"
_IN_MEMORY = 64 << 20  # bytes of a pipe or of an expanded file; more goes to a temporary file
_PART = 1 << 20  # bytes expanded at a time
_MOST_EXPANDED = 1 << 30
_MOST_RATIO = 200
"""A file may expand to that many bytes, or to that multiple of its size, whichever is more."""


@contextmanager
def open_input(path: str | Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a file for reading at any position; also yields the path that names its trace.

    `-` is standard input. A pipe, which cannot be read twice, is copied first; gzip is expanded.
    Errors of reading become a TraceError of one line that names the file.
    """
    path = Path(path)
    with errors_naming(told(path)), ExitStack() as closing:
        if path.is_dir():
            raise TraceError("is a folder, not a file")
        file: IO[bytes]
        if str(path) == STANDARD_INPUT:
            file = closing.enter_context(open(0, "rb", closefd=False))
        else:
            file = closing.enter_context(path.open("rb"))
        if not file.seekable():
            file = closing.enter_context(_copied(file))
        name = _name(path)
        begins = file.read(len(_GZIP))
        file.seek(0)
        if begins == _GZIP:
            file = closing.enter_context(_expanded(file))
            name = name.with_suffix("") if name.suffix == ".gz" else name
        yield cast(BinaryIO, file), name


def told(path: str | Path) -> str:
    """What errors call a path."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def _name(path: Path) -> Path:
    """The path that names a trace, or a word in place of a meaningless path."""
    if str(path) in (STANDARD_INPUT, "/dev/stdin"):
        return Path("stdin")
    pipe = re.fullmatch(r"/(?:dev|proc/[^/]+)/fd/(\d+)", str(path))
    return Path(f"pipe{pipe[1]}") if pipe else path


def _copied(source: IO[bytes] | gzip.GzipFile) -> IO[bytes]:
    copy = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  the caller closes it
    copyfileobj(source, copy)
    copy.seek(0)
    return copy


def _expanded(file: IO[bytes]) -> IO[bytes]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    most = max(_MOST_EXPANDED, _MOST_RATIO * size)
    copy = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  the caller closes it
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as source:
            while part := source.read(_PART):
                if copy.tell() + len(part) > most:
                    raise TraceError(
                        f"is gzip of {size:,} bytes that expands to more than {most:,} bytes; if"
                        " that is intended, expand it first"
                    )
                copy.write(part)
        copy.seek(0)
        return copy
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"is gzip, but damaged: {str(error).splitlines()[0]}") from error
