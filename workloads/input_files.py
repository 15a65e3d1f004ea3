# SPDX-License-Identifier: Apache-2.0
"""Open input files: regular, compressed, the only one of an archive, a pipe, standard input."""

import bz2
import gzip
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO, cast

from allocbench.workloads.containers import IN_MEMORY, PARQUET, most_expanded
from allocbench.workloads.errors import errors_naming
from allocbench.workloads.vocabulary import TraceError

STANDARD_INPUT = "-"
_PART = 1 << 20  # bytes expanded at a time
_COMPRESSORS: Mapping[bytes, tuple[str, Callable[[IO[bytes]], IO[bytes]]]] = {
    b"\x1f\x8b": ("gzip", lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file, mode="rb"))),
    b"BZh": ("bzip2", lambda file: cast(IO[bytes], bz2.BZ2File(file))),
    b"\xfd7zXZ\0": ("xz", lambda file: cast(IO[bytes], lzma.LZMAFile(file))),  # noqa: SIM115
}
"""By the first bytes of a file: what it is, and how its content is read."""
_MOST_LAYERS = 3
"""A file such as .tar.gz is packed twice."""
_EXTENSIONS = (".gz", ".bz2", ".xz")
_TAR = slice(257, 262)
"""Where "ustar" stands."""


@contextmanager
def open_input(path: str | Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a file for reading at any position; also yields the path that names its trace.

    `-` is standard input. A pipe, which cannot be read twice, is copied first. What is compressed
    with gzip, bzip2 or xz is expanded, and the only file of a zip or tar archive is taken out.
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
        for _ in range(_MOST_LAYERS):
            unpacked = _unpacked(file)
            if unpacked is None:
                break
            file = closing.enter_context(unpacked[0])
            without = name.with_suffix("") if name.suffix in _EXTENSIONS else name
            name = Path(unpacked[1]) if unpacked[1] else without
        is_parquet = file.read(len(PARQUET)) == PARQUET
        file.seek(0)
        if is_parquet:
            from allocbench.workloads.parquet import as_csv

            if text := as_csv(cast(BinaryIO, file)):
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


@contextmanager
def _errors_of_csv() -> Iterator[None]:
    try:
        yield
    except TraceError as error:
        told = f"is Parquet without 'allocbench.trace' metadata, so it is read as CSV: {error}"
        raise TraceError(told) from error


def _copied(source: IO[bytes]) -> IO[bytes]:
    copy = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  the caller closes it
    copyfileobj(source, copy)
    copy.seek(0)
    return copy


def _unpacked(file: IO[bytes]) -> tuple[IO[bytes], str] | None:
    """What a file holds, and its name in an archive; None if it is not packed.

    An archive with several files is not unpacked, because only the user knows which is meant.
    """
    head = file.read(_TAR.stop)
    file.seek(0)
    for begins, (kind, opener) in _COMPRESSORS.items():
        if head.startswith(begins):
            with opener(file) as source:
                return _expanded(file, source, kind), ""
    try:
        if head.startswith(b"PK\3\4"):
            with zipfile.ZipFile(file) as archive:
                files = [one for one in archive.infolist() if not one.is_dir()]
                if len(files) == 1:
                    with archive.open(files[0]) as source:
                        return _expanded(file, source, "a zip archive"), files[0].filename
        elif head[_TAR] == b"ustar":
            with tarfile.open(fileobj=file, mode="r:") as tar:
                members = list(islice((one for one in tar if one.isfile()), 2))
                content = tar.extractfile(members[0]) if len(members) == 1 else None
                if content is not None:
                    return _expanded(file, content, "a tar archive"), members[0].name
    except (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise TraceError(f"is an archive, but damaged: {str(error).splitlines()[0]}") from error
    file.seek(0)
    return None


def _expanded(file: IO[bytes], source: IO[bytes], kind: str) -> IO[bytes]:
    """The content of a source that expands a part of a file; raises TraceError.

    Of a file that was cut off, JSON is returned as far as it goes: its reader says that it does
    not end. Others could seem whole.
    """
    position = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(position)
    most = most_expanded(size)
    copy = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  the caller closes it
    try:
        read = getattr(source, "read1", source.read)  # returns what there is before a cut
        while part := read(_PART):
            if copy.tell() + len(part) > most:
                raise TraceError(
                    f"is {kind} of {size:,} bytes that expands to more than {most:,} bytes; if"
                    " that is intended, expand it first"
                )
            copy.write(part)
        copy.seek(0)
        return copy
    except EOFError as error:
        copy.seek(0)
        if copy.read(1) not in (b"{", b"["):
            raise TraceError(f"is {kind}, but damaged: it was cut off") from error
        copy.seek(0)
        return copy
    except (zlib.error, lzma.LZMAError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise TraceError(f"is {kind}, but damaged: {str(error).splitlines()[0]}") from error
