# SPDX-License-Identifier: Apache-2.0
"""A log of RMM's logging adaptor as a trace.

    Thread,Time,Action,Pointer,Size,Stream
    2342727,15:47:02.841961,allocate,0x7f0012400000,1048576,0x0
    2342727,15:47:02.841977,free,0x7f0012400000,1048576,0x0

Sizes are the bytes requested from the adaptor. Pointers and streams are hexadecimal with 0x, or
decimal, or (nil); times are those of a clock, which may pass midnight, or seconds. A request that
failed ("allocate failure") is an alloc with its free; the provenance counts these requests. The
requesting thread is not kept. The header may be missing or repeated, as in logs that were cut or
joined. A last line that ends in the middle is left out, as the provenance says.
Logs that another program has exported may have any form of `csv_dialect`.
"""

import io
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads._native import RmmRows
from allocbench.workloads.coverage import imported
from allocbench.workloads.csv_dialect import ENCODING, Rows, first_line, header, short
from allocbench.workloads.importers.addresses import AddressedEvents, assemble
from allocbench.workloads.trace import MAX_SIZE, Provenance, Trace, TraceError

NOWHERE: int = RmmRows.NOWHERE
"""The address of a request that failed, which is an alloc and a free. No pointer is as large."""
HEADER = "Thread,Time,Action,Pointer,Size,Stream"
_COLUMNS = tuple(HEADER.lower().split(",")[1:])
_ALLOC, _FREE, _FAILURE = "allocate", ("free", "deallocate"), "allocate failure"
_CLOCK = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:[.:](\d{1,9}))?", re.ASCII)
_SECONDS = re.compile(r"(\d{1,10})(?:\.(\d{1,9})\d*)?", re.ASCII)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19}", re.ASCII)
_SECOND = 10**9  # ns
_DAY = 24 * 3600 * _SECOND
_BLOCK = 1 << 20  # bytes read at a time
_ROW = re.compile(rf"[^,]*,[0-9:.]+,({_ALLOC}|{'|'.join(_FREE)}|{_FAILURE}),[^,]*,[0-9]+,[^,]*")


class OtherForm(Exception):  # noqa: N818  not an error: another reader takes over
    """A row has a form that RMM does not write."""


class _Log(NamedTuple):
    """The events of a log, how many requests failed, and whether the last line was left out."""

    events: AddressedEvents
    failures: int
    cut: bool


def is_rmm_log(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an RMM log."""
    line = first_line(head)
    return header(line, _has_columns)[1] is not None or _ROW.fullmatch(line.rstrip()) is not None


def _has_columns(names: Sequence[str]) -> bool:
    return all(names.count(name) == 1 for name in _COLUMNS)


def read(file: BinaryIO, path: Path) -> Trace:
    """Read an open log; raises TraceError naming the line (the header is line 1) that is wrong."""
    first = first_line(file.read(1 << 10)).rstrip()
    file.seek(0)
    try:
        if first == HEADER:
            file.readline()
        log = _all_rows(file)
    except OtherForm:
        file.seek(0)
        log = _row_by_row(file)
    extra: dict[str, object] = {"format": "RMM log", "sizes": "requested"}
    if log.failures:
        extra["failed_requests"] = log.failures
        if log.events.address[-1] == NOWHERE:
            extra["failed_request"] = int(log.events.size[-1])
    if log.cut:
        extra["note"] = "the last line, which is incomplete, is left out"
    provenance = Provenance.of_file(path, extra=extra)
    trace = assemble(log.events, provenance).trace
    return replace(trace, coverage=imported(trace.provenance))


def _all_rows(file: BinaryIO) -> _Log:
    """A log as RMM writes it; raises OtherForm for what RMM does not write, which may be wrong."""
    rows, rest = RmmRows(), b""
    while block := file.read(_BLOCK):
        lines = block if block.endswith(b"\n") else block + file.readline()
        end = lines.rfind(b"\n") + 1
        rest = lines[end:]
        if rest and RmmRows().read(rest):
            end, rest = len(lines), b""
        if not rows.read(lines[:end]):
            raise OtherForm
    if rest and not _is_cut(rest):
        raise OtherForm
    return _Log(_events(rows.take()), rows.failures, bool(rest))


def _events(columns: Iterable[NDArray[Any]]) -> AddressedEvents:
    """The events of is_alloc, address, size, stream and time, which go on after midnight."""
    is_alloc, address, size, stream, time = columns
    time_ns = time.astype(np.int64)
    time_ns += _DAY * np.cumsum(np.diff(time_ns, prepend=0) < -_DAY // 2)
    label = np.zeros(len(size), np.uint32)
    return AddressedEvents(is_alloc.view(np.bool_), address, size, stream, label, time_ns)


def _is_cut(last: bytes) -> bool:
    """Whether a last line without a line break is no row."""
    try:
        _row_by_row(io.BytesIO(f"{HEADER}\n".encode() + last + b"\n"))
    except (TraceError, UnicodeDecodeError):
        return True
    return False


def _row_by_row(file: BinaryIO) -> _Log:
    """A log in any form; raises TraceError."""
    unfinished, cut, failures = _unfinished_line(file), False, 0
    columns = [array(code) for code in "BQQqQ"]
    with io.TextIOWrapper(file, ENCODING, newline="") as text:
        rows = Rows(text, _has_columns, HEADER.lower().split(","))
        try:
            for fails, event in _parsed(rows):
                failures += fails
                for allocates in (True, False) if fails else event[:1]:
                    for column, value in zip(columns, (allocates, *event[1:]), strict=True):
                        column.append(value)
        except TraceError:
            cut = rows.line == unfinished
            if not cut:
                raise
    return _Log(_events(map(np.asarray, columns)), failures, cut)


def _parsed(rows: Rows) -> Iterator[tuple[bool, tuple[bool, int, int, int, int]]]:
    """Whether each request failed, and its fields of `_events`; raises TraceError."""
    columns = list(rows.names or ())
    places = [columns.index(name) for name in _COLUMNS]
    for row in rows.filled(rows.delimiter.join(columns)):
        line, count = rows.line, len(rows.row)
        if count < len(columns):
            raise TraceError(f"line {line}: {count} fields, not {len(columns)}")
        when, action, pointer, requested, of = (row[place].strip() for place in places)
        if action.lower() == "action":
            continue
        fails = action == _FAILURE
        if not fails and action != _ALLOC and action not in _FREE:
            actions = ", ".join((_ALLOC, *_FREE, _FAILURE))
            raise TraceError(f"line {line}: unknown action {short(action)!r}; known are {actions}")
        time = _time(when, line)
        address = NOWHERE if fails else _number(pointer, "pointer", line)
        size, stream = _number(requested, "size", line), _number(of, "stream", line)
        yield fails, (action == _ALLOC, address, size, stream, time)


def _unfinished_line(file: BinaryIO) -> int:
    """The number of the last line if it has no line break, else 0; the position stays."""
    start, number, end = file.tell(), 1, b"\n"
    while block := file.read(1 << 20):
        number += block.count(b"\n")
        end = block[-1:]
    file.seek(start)
    return 0 if end == b"\n" else number


def _time(text: str, line: int) -> int:
    """Nanoseconds since midnight or since any other moment."""
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds, fraction = match.groups("")
        whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    elif match := _SECONDS.fullmatch(text):
        seconds, fraction = match.groups("")
        whole = int(seconds)
    else:
        raise TraceError(
            f"line {line}: time {short(text)!r} is neither HH:MM:SS.FFFFFF nor seconds"
        )
    return whole * _SECOND + int(fraction.ljust(9, "0"))


def _number(text: str, field: str, line: int) -> int:
    if text in ("(nil)", "(null)", "nullptr"):
        return 0
    if not _NUMBER.fullmatch(text) or (number := int(text, 16 if text[1:2] in "xX" else 10)) < 0:
        raise TraceError(f"line {line}: {field} {short(text)!r} is not a number")
    if number > MAX_SIZE:
        raise TraceError(f"line {line}: {field} {short(text)!r} is above {MAX_SIZE}")
    return number
