# SPDX-License-Identifier: Apache-2.0
"""Read traces in any format of `workloads.formats`; write Parquet or CSV."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from allocbench.base.error_text import ErrorText, MemoryDump
from allocbench.base.files import whole_file
from allocbench.workloads import error_texts
from allocbench.workloads.block_lifetimes import (
    Lifetimes,
    is_lifetimes,
    lifetimes,
    parse_lifetimes,
    write_blocks,
)
from allocbench.workloads.errors import errors_naming
from allocbench.workloads.formats import (
    FORMATS,
    HEAD,
    OUTPUTS,
    Format,
    format_of,
    other_of,
    text_of,
)
from allocbench.workloads.graphs import OperatorGraph, is_graph, parse_graph
from allocbench.workloads.input_files import open_input, told
from allocbench.workloads.parquet import write_parquet
from allocbench.workloads.plain_csv import write_csv
from allocbench.workloads.recordings import Recording
from allocbench.workloads.streaming import AnyTrace, StreamedTrace, check_sum
from allocbench.workloads.trace import Trace, TraceError
from allocbench.workloads.xla_buffers import BufferAssignment, is_assignment, parse_assignment


def read(path: str | Path, **options: str | int) -> Trace:
    """Read and validate a trace; its format is recognized by the content.

    path: of a regular file or a pipe, compressed with gzip or not; `-` is standard input.
    options: those of the format, such as the device of a snapshot.

    Raises TraceError in one line that names the file, the broken rule and where: the line of a
    CSV (the header is line 1) or the event (the first is event 0).
    """
    with open_input(path) as (file, name):
        return _read(file, name, options)


MOST_IN_MEMORY = 10_000_000
"""Events of the largest trace that `read_large` reads as a whole."""


def read_large(
    path: str | Path, *, most_in_memory: int | None = None, **options: str | int
) -> AnyTrace:
    """Read and validate a trace, part by part if it has more than `most_in_memory` events.

    most_in_memory: default: MOST_IN_MEMORY. Parquet can be read part by part, and CSV as allocbench
    writes it; other files are read as a whole. path, options and errors as in `read`.
    """
    most = MOST_IN_MEMORY if most_in_memory is None else most_in_memory
    with ExitStack() as opened:
        file, name = opened.enter_context(open_input(path))
        file_format = _format_of(file, name, options)
        source = file_format.stream(file, name, most)
        if source is not None:
            return StreamedTrace(source, told(path), opened.pop_all().close)
        file.seek(0)
        return _read(file, name, options)


def read_plannable(
    path: str | Path, **options: str | int
) -> OperatorGraph | BufferAssignment | tuple[Lifetimes, bool]:
    """The operator graph of a file, its XLA buffers, or its blocks and whether it is a CSV of them.

    options: those of the trace format. Raises TraceError like `read`, and ModuleNotFoundError with
    the extra that a TensorFlow Lite model requires.
    """
    with open_input(path) as (file, name):
        head = file.read(HEAD)
        file.seek(0)
        if not options and is_graph(head):
            return parse_graph(file)
        if not options and is_assignment(head):
            return parse_assignment(file, name)
        if not options and is_lifetimes(head):
            return parse_lifetimes(file), True
        return lifetimes(_read(file, name, options)), False


def read_recording(path: str | Path, **options: str | int) -> Recording:
    """Read a trace with what the recorded allocator did; path, options and errors as in `read`.

    Also raises TraceError for a format that does not contain it.
    """
    with open_input(path) as (file, name):
        recording = _format_of(file, name, options).record(file, name, **options)
        _check(recording.trace)
        return recording


def _read(file: BinaryIO, name: Path, options: Mapping[str, str | int]) -> Trace:
    trace = _format_of(file, name, options).read(file, name, **options)
    _check(trace)
    return trace


def _check(trace: Trace) -> None:
    """Raise TraceError for a trace without events or with a broken rule."""
    if not len(trace):
        nothing = trace.provenance.extra.get("requests_for_no_bytes")
        raise TraceError(
            f"holds no events{f', but {nothing} requests for no bytes' if nothing else ''}"
        )
    if broken := trace.first_broken():
        raise TraceError(f"event {broken.event or 0}: {broken.rule}")
    check_sum(trace)


def _format_of(file: BinaryIO, name: Path, options: Mapping[str, str | int]) -> Format:
    """The format of an open file, which has these options."""
    head = file.read(HEAD)
    file.seek(0)
    found = _format(head, file, name)
    for option in options.keys() - found.options.keys():
        valid = f"valid options: {', '.join(found.options)}" if found.options else "it has none"
        raise TraceError(f"is {found.name}, which has no option '{option}'; {valid}")
    return found


_MOST_SHOWN = 60  # letters of a line

WRITERS: Mapping[str, Callable[[Trace, BinaryIO], None]] = dict(
    zip(OUTPUTS, (write_parquet, write_csv, write_blocks), strict=True)
)
"""What writes each of the output formats."""


def kind_by_extension(path: str | Path) -> str:
    """The key of WRITERS for the extension of a path; raises TraceError for an unknown one."""
    name = Path(path).suffix.removeprefix(".")
    if name not in ("parquet", "csv"):
        raise TraceError(f"{path}: the extension must be .parquet or .csv")
    return name


def write(trace: Trace, path: str | Path, kind: str | None = None) -> None:
    """Write a valid trace in a format of WRITERS, by default that of the extension.

    Raises TraceError if the trace is invalid, the extension is unknown, the format cannot store
    something essential, or the path cannot be written.
    """
    writer = WRITERS[kind or kind_by_extension(path)]
    path = Path(path)
    with errors_naming(path):
        trace.validate()
        with whole_file(path) as file:
            writer(trace, file)


class NotATraceError(TraceError):
    """The file is no trace, but `explain` answers from its content."""

    def __init__(self, message: str, content: ErrorText | MemoryDump) -> None:
        super().__init__(message)
        self.content = content


_MOST_TEXT = 1 << 25
"""Bytes at the end of a text in which errors are looked for."""


def _format(head: bytes, file: BinaryIO, name: Path) -> Format:
    if not head:
        raise TraceError("is empty")
    if is_graph(head):
        raise TraceError("is the graph of a model, not a trace; `allocbench plan` reads it")
    if other := other_of(head):
        content = other.read(file, name)
        raise TraceError(str(other)) if content is None else NotATraceError(str(other), content)
    if recognized := format_of(head):
        return recognized
    names = "; ".join(file_format.name for file_format in FORMATS)
    if b"\0" in head:
        raise TraceError(f"its format is not recognized; known formats: {names}")
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_TEXT))
    if error := error_texts.parse(file.read().decode("utf-8", "replace")):
        raise NotATraceError(str(text_of(error.program, error.backend)), error)
    line = head.partition(b"\n")[0].strip()
    if line and (text := line.decode("utf-8", "replace")).isprintable():
        raise TraceError(
            f"its format is not recognized: line 1 is '{text[:_MOST_SHOWN]}'; expected the"
            f" columns op,id,size for a trace as CSV. Known formats: {names}; the text of an"
            " out-of-memory error, of which it has none that is known"
        )
    raise TraceError(f"its format is not recognized; known formats: {names}")
