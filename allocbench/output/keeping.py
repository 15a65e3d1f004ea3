# SPDX-License-Identifier: Apache-2.0
"""Keep measured results if an output file cannot be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from allocbench import errors
from allocbench.errors import UsageError
from allocbench.output import stdout
from allocbench.output.files import write_records

if TYPE_CHECKING:
    import pandas as pd

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
