# SPDX-License-Identifier: Apache-2.0
"""Where results and traces go: files that appear whole or not at all, or standard output."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocbench import errors
from allocbench.base.files import STDOUT as STDOUT
from allocbench.base.files import open_output as open_output
from allocbench.base.files import write_text as write_text
from allocbench.errors import UsageError
from allocbench.output import stdout
from allocbench.output.stdout import tell_notes
from allocbench.reports.rows import results
from allocbench.workloads.vocabulary import FREE, TraceError

if TYPE_CHECKING:
    import pandas as pd

    from allocbench.workloads import Trace

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


def write_json(value: Any, path: str | Path) -> None:
    """Write a value as JSON and a line end; raises as `open_output`."""
    write_text(json.dumps(value, indent=1) + "\n", path)


def write_records(table: pd.DataFrame, path: str) -> None:
    """Write a frame as a JSON list of objects, null for what is missing; raises as `open_output`.

    Sequences within cells are lists.
    """
    write_json(results.records(table), path)


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
def written(outputs: Mapping[str | None, Write], extension: str, keep: Write) -> Iterator[None]:
    """Write results, run the block, which prints them, and then report outputs that failed.

    outputs: a function for each path; None is an output that is not wanted. If one fails, `keep`
    writes everything to a temporary file with the extension, which the error names; the block runs
    nevertheless.

    Raises UsageError for outputs that cannot be written; other errors are raised unchanged.
    """
    failed: list[Exception] = []
    for path, write in outputs.items():
        try:
            if path is not None:
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
    return written({path: write}, ".json", write)


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


def check_trace_output(path: str, kind: str | None = None) -> str:
    """The format of a trace output, a key of WRITERS: `kind`, or else by extension.

    Raises UsageError unless a trace can be written to the path.
    """
    from allocbench.workloads.files import WRITERS, kind_by_extension  # imports numpy: see --help

    if kind is not None and kind not in WRITERS:
        raise UsageError(f"--format {kind}: no such format; valid: {', '.join(WRITERS)}")
    try:
        format_ = kind or ("csv" if path == STDOUT else kind_by_extension(path))
    except TraceError as error:
        raise UsageError(str(error)) from error
    check_outputs(path)
    return format_


def beside(path: str, name: str) -> str:
    """The path of one of several traces: trace.parquet and rank0 give trace-rank0.parquet."""
    stem = Path(path).stem
    return str(Path(path).with_stem(f"{stem}-{name}")) if name else path


def write_trace(trace: Trace, path: str, kind: str | None = None) -> None:
    """Write a trace to a file, or to standard output for "-".

    Marks and trims that the format cannot store are counted on standard error. Raises TraceError
    or UsageError naming the path.
    """
    from allocbench.workloads.files import WRITERS

    kind = check_trace_output(path, kind)
    with open_output(path) as sink:
        try:
            WRITERS[kind](trace, sink)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from error
    left_out = int((trace.op > FREE).sum())
    if kind != "parquet" and left_out:
        tell_notes([f"{left_out:,} marks and trims were left out: CSV cannot store them"])
    if kind == "lifetimes" and not trace.coverage.whole:
        tell_notes(["the trace is a part of its program; CSV of lifetimes cannot store which part"])
