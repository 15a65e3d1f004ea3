# SPDX-License-Identifier: Apache-2.0
"""Traces on disk: read in any of the formats of workloads.formats, written as Parquet or CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from allocbench.base.whole_file import whole_file
from allocbench.workloads.errors import errors_naming
from allocbench.workloads.exporters.minimalloc import write_blocks
from allocbench.workloads.formats import FORMATS, HEAD, Format, format_of
from allocbench.workloads.parquet import write_parquet
from allocbench.workloads.plain_csv import write_csv
from allocbench.workloads.trace import Trace, TraceError


def read(path: str | Path, **options: str | int) -> Trace:
    """Read a trace in the format that the file's content shows, and validate it.

    options: what the format lets a user choose, such as the device of a snapshot.

    Raises TraceError in one line that names the file, the broken rule and where: the line of a
    CSV (the header is line 1) or the event (the first is event 0).
    """
    path = Path(path)
    with errors_naming(path):
        if path.exists() and not path.is_file():
            raise TraceError("is not a regular file")
        with path.open("rb") as file:
            head = file.read(HEAD)
            file.seek(0)
            found = _format(head)
            _check_options(found, options)
            trace = found.read(file, path, **options)
        if not len(trace):
            raise TraceError("holds no events")
        if broken := trace.first_broken():
            raise TraceError(f"{found.place(broken.event or 0)}: {broken.rule}")
    return trace


WRITERS: Mapping[str, Callable[[Trace, BinaryIO], None]] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "lifetimes": write_blocks,
}
"""What a trace is written as, by name. Only Parquet holds all of a trace."""


def kind_by_extension(path: str | Path) -> str:
    """The key of WRITERS that a path's extension says; TraceError for another one."""
    name = Path(path).suffix.removeprefix(".")
    if name not in ("parquet", "csv"):
        raise TraceError(f"{path}: the extension must say the format, .parquet or .csv")
    return name


def write(trace: Trace, path: str | Path, kind: str | None = None) -> None:
    """Write a valid trace as one of WRITERS, or as its path's extension says: .parquet or .csv.

    The file appears whole or not at all. Raises TraceError when the trace is not valid, the
    extension is another, the format has no place for something that matters, or the path cannot
    be written.
    """
    writer = WRITERS[kind or kind_by_extension(path)]
    path = Path(path)
    with errors_naming(path):
        trace.validate()
        with whole_file(path) as file:
            writer(trace, file)


def _format(head: bytes) -> Format:
    if not head:
        raise TraceError("is empty")
    if found := format_of(head):
        return found
    known = "; ".join(one.name for one in FORMATS)
    raise TraceError(f"its content is of no known format; known are: {known}")


def _check_options(found: Format, options: dict[str, str | int]) -> None:
    for name in options:
        if name not in found.options:
            valid = f"valid options: {', '.join(found.options)}" if found.options else "it has none"
            raise TraceError(f"has no option '{name}', being {found.name}; {valid}")
