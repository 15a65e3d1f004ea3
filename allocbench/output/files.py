# SPDX-License-Identifier: Apache-2.0
"""Where results go: files that appear whole or not at all, or standard output."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from allocbench import errors
from allocbench.base.whole_file import whole_file
from allocbench.errors import UsageError
from allocbench.output import stdout
from allocbench.reports.rows import results

if TYPE_CHECKING:
    import pandas as pd

STDOUT = "-"
_OPTIONS = re.compile(r":(?=\w+=)")


def check_outputs(*paths: str | None, inputs: Sequence[str] = ()) -> None:
    """Raise UsageError unless every path can be written, no two are the same, and none is an input.

    None means that an output is not wanted. inputs: paths, perhaps with options. No files are left
    behind.
    """
    read = {os.path.realpath(file) for text in inputs for file in (text, _OPTIONS.split(text)[0])}
    wanted = [path for path in paths if path is not None]
    places = [path if path == STDOUT else os.path.realpath(path) for path in wanted]
    for n, (path, place) in enumerate(zip(wanted, places, strict=True)):
        if place in places[:n]:
            where = "standard output" if path == STDOUT else path
            raise UsageError(f"two outputs cannot both go to {where}")
        if path != STDOUT:
            if place in read:
                raise UsageError(f"{path}: is also the input, which would be lost")
            _check_writable(path)


def check_folder(path: str | None) -> None:
    """Raise UsageError unless files can be written into a folder, which may be new."""
    if path is None:
        return
    folder = Path(os.path.realpath(path))
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{path}: cannot write: Not a directory")
    parent = next(place for place in (folder, *folder.parents) if place.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path}: cannot write: Permission denied")


@contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """Open a binary stream to a file, written as `whole_file` does, or to standard output ("-").

    Raises UsageError naming the path when it cannot be written.
    """
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with whole_file(path) as sink:
            yield sink
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from error


def write_text(text: str, path: str) -> None:
    """Write a text; raises as `open_output`."""
    with open_output(path) as sink:
        sink.write(text.encode())


def write_records(table: pd.DataFrame, path: str) -> None:
    """Write a frame as a JSON list of objects, null for what is missing; raises as `open_output`.

    Sequences within cells are lists.
    """
    with open_output(path) as sink:
        sink.write(json.dumps(results.records(table), indent=1).encode() + b"\n")


def _check_writable(path: str) -> None:
    target = Path(os.path.realpath(path))
    try:
        if target.is_symlink():
            raise OSError(None, "Its symbolic links form a loop")
        if target.is_dir():
            raise IsADirectoryError(None, "Is a directory")
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(None, "Permission denied")
        if target.exists() and not target.is_file():
            return
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror or error}") from error


Write = Callable[[str], object]
"""Writes results to a path."""


@contextmanager
def written(outputs: Mapping[str, Write], extension: str, keep: Write) -> Iterator[None]:
    """Write results, run the block, which prints them, and then report outputs that failed.

    outputs: a function for each path. If one fails, `keep` writes everything to a temporary file
    with the extension, which the error names; the block runs nevertheless.

    Raises UsageError for outputs that cannot be written; other errors are raised unchanged.
    """
    failed: list[Exception] = []
    for path, write in outputs.items():
        try:
            write(path)
        except BrokenPipeError:
            raise  # the reader of the pipe has ended
        except Exception as error:
            failed.append(error)
    where = _kept(extension, keep) if failed else ""
    yield
    for failure in failed:
        if not isinstance(failure, (*errors.USER_ERRORS, OSError)):
            failure.add_note(where)
            raise failure
    if failed:
        messages = "; ".join(_message(failure) for failure in failed)
        raise UsageError(f"{messages}; {where}")


def records_written(table: pd.DataFrame, path: str | None) -> AbstractContextManager[None]:
    """Write a frame as JSON records, if a path is given, as `written` does."""
    write = partial(write_records, table)
    return written({path: write} if path else {}, ".json", write)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and (failure := stdout.failure(error)):
        stdout.abandon()
        return failure
    return str(error)


def _kept(extension: str, keep: Write) -> str:
    try:
        handle, path = tempfile.mkstemp(extension, "allocbench-")
        os.close(handle)
    except OSError as error:
        return f"the results could not be kept in a temporary file either: {error.strerror}"
    try:
        keep(path)
    except (*errors.USER_ERRORS, OSError) as error:
        os.unlink(path)
        return f"the results could not be kept in a temporary file either: {error}"
    return f"the results are kept in {path}"
