# SPDX-License-Identifier: Apache-2.0
"""Results that took time to measure outlive a file that cannot be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pandas as pd

from allocbench import standard_output
from allocbench.errors import USER_ERRORS, UsageError
from allocbench.outputs import write_records

Write = Callable[[str], object]
"""Writes results to a path."""


@contextmanager
def written(outputs: dict[str, Write], extension: str, keep: Write) -> Iterator[None]:
    """Write results, run the block, which prints them, and then tell what could not be written.

    outputs: how to write to each path. When one of them fails, `keep` writes everything to a
    temporary file with that extension, which the error names, and the block is run all the same.

    Raises UsageError for the outputs that cannot be written; what else they raise comes through.
    """
    failed: list[Exception] = []
    for path, write in outputs.items():
        try:
            write(path)
        except BrokenPipeError:
            raise  # who read it wants no more
        except Exception as error:
            failed.append(error)
    where = _kept(extension, keep) if failed else ""
    yield
    for one in failed:
        if not isinstance(one, (*USER_ERRORS, OSError)):
            one.add_note(where)
            raise one
    if failed:
        told = "; ".join(_told(one) for one in failed)
        raise UsageError(f"{told}; {where}")


def records_written(table: pd.DataFrame, path: str | None) -> AbstractContextManager[None]:
    """Write a frame as JSON records, if a path is given, as `written` does."""
    write = partial(write_records, table)
    return written({path: write} if path else {}, ".json", write)


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and (failure := standard_output.failure(error)):
        standard_output.abandon()
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
    except (*USER_ERRORS, OSError) as error:
        os.unlink(path)
        return f"the results could not be kept in a temporary file either: {error}"
    return f"the results are kept in {path}"
