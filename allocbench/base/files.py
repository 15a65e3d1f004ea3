# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all, and the cache folder."""

import atexit
import functools
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from allocbench.base.errors import UserError

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
    is_another = False
    try:  # from before the file exists: an interrupt may come as soon as it does
        try:
            descriptor = os.open(partial, _FLAGS, mode)
        except FileExistsError:
            is_another = True
            raise
        with os.fdopen(descriptor, "wb") as sink:
            if old is not None:
                with suppress(OSError):  # a file system without permissions
                    os.fchmod(descriptor, mode)
            yield sink
        partial.replace(target)
    finally:
        if not is_another:
            with suppress(OSError):  # if it could not be created, either
                partial.unlink()


STDOUT = "-"


@contextmanager
def open_output(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary stream to a file, written as `whole_file` does, or to standard output ("-").

    Raises UserError naming the path when it cannot be written.
    """
    if str(path) == STDOUT:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with whole_file(path) as sink:
            yield sink
    except OSError as error:
        raise UserError(f"{path}: cannot write: {error.strerror or error}") from error


def write_bytes(data: bytes, path: str | Path) -> None:
    """Write bytes as `open_output` does; raises the same."""
    with open_output(path) as sink:
        sink.write(data)


def write_text(text: str, path: str | Path) -> None:
    """Write text as UTF-8, regardless of the terminal's encoding; raises as `open_output`."""
    write_bytes(text.encode(), path)


_PRIVATE_FOLDER = 0o700


def cache() -> Path:
    """The folder of this program in the user's cache; a new one is for this user alone.

    Where it cannot be written to, a temporary folder of this process. Raises UserError for a
    relative XDG_CACHE_HOME.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    if named and not os.path.isabs(named):
        raise UserError(f"XDG_CACHE_HOME={named}: not an absolute path")
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home folder
        folder = (Path(named) if named else Path.home() / ".cache") / "allocbench"
        folder.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return _temporary()


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="allocbench-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def keep_newest(folder: Path, most: int) -> None:
    """Remove the oldest entries of a folder, except for a number of recent ones."""
    times = dict[Path, float]()
    for path in folder.glob("[!.]*"):
        with suppress(OSError):  # another process has removed it
            times[path] = path.stat().st_mtime
    for path in sorted(times, key=lambda path: times[path], reverse=True)[most:]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
