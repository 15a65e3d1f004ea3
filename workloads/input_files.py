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

from allocbench.workloads.containers import GZIP, IN_MEMORY, PARQUET, most_expanded
from allocbench.workloads.errors import errors_naming
from allocbench.workloads.vocabulary import TraceError

STANDARD_INPUT = "-"
_PART = 1 << 20  # bytes expanded at a time


@contextmanager
def open_input(path: str | Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a file for reading at any position; also yields the path that names its trace.

    `-` is standard input. A pipe, which cannot be read twice, is copied first; gzip is expanded.
    Parquet that is not a trace is opened as CSV.
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
        begins = file.read(len(GZIP))
        file.seek(0)
        if begins == GZIP:
            file = closing.enter_context(_expanded(file))
            name = name.with_suffix("") if name.suffix == ".gz" else name
        is_parquet = file.read(len(PARQUET)) == PARQUET
        file.seek(0)
        if is_parquet and (text := _as_csv(cast(BinaryIO, file))):
            file = closing.enter_context(text)
            closing.enter_context(_errors_of_csv())
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


def _as_csv(file: BinaryIO) -> IO[bytes] | None:
    from allocbench.workloads.plain_parquet import as_csv

    return as_csv(file)


@contextmanager
def _errors_of_csv() -> Iterator[None]:
    try:
        yield
    except TraceError as error:
        told = f"is Parquet without 'allocbench.trace' metadata, so it is read as CSV: {error}"
        raise TraceError(told) from error


def _copied(source: IO[bytes] | gzip.GzipFile) -> IO[bytes]:
    copy = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  the caller closes it
    copyfileobj(source, copy)
    copy.seek(0)
    return copy


def _expanded(file: IO[bytes]) -> IO[bytes]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    most = most_expanded(size)
    copy = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  the caller closes it
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
