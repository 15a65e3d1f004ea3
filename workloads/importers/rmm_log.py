# SPDX-License-Identifier: Apache-2.0
"""A log of RMM's logging adaptor as a trace.

    Thread,Time,Action,Pointer,Size,Stream
    2342727,15:47:02.841961,allocate,0x7f0012400000,1048576,0x0
    2342727,15:47:02.841977,free,0x7f0012400000,1048576,0x0

Sizes are the bytes requested from the adaptor. Pointers and streams are hexadecimal with 0x, or
decimal, or (nil); times are those of a clock, which may pass midnight, or seconds. Requests that
failed ("allocate failure") are counted in the provenance; the requesting thread is not kept.
Logs that another program has exported may have any form of `csv_dialect`.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from allocbench.workloads.coverage import imported
from allocbench.workloads.csv_dialect import ENCODING, Rows, first_line, header
from allocbench.workloads.importers.addresses import AddressedEvents, trace_of
from allocbench.workloads.importers.rmm_columns import OtherForm, rows_of
from allocbench.workloads.trace import MAX_SIZE, Provenance, Trace, TraceError

HEADER = "Thread,Time,Action,Pointer,Size,Stream"
_COLUMNS = tuple(HEADER.lower().split(",")[1:])
_ALLOC, _FREE, _FAILURE = "allocate", ("free", "deallocate"), "allocate failure"
_CLOCK = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:[.:](\d{1,9}))?", re.ASCII)
_SECONDS = re.compile(r"(\d{1,10})(?:\.(\d{1,9})\d*)?", re.ASCII)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19}", re.ASCII)
_SECOND = 10**9  # ns
_DAY = 24 * 3600 * _SECOND


def is_rmm_log(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an RMM log."""
    return header(first_line(head), _has_columns)[1] is not None


def _has_columns(names: Sequence[str]) -> bool:
    return all(names.count(name) == 1 for name in _COLUMNS)


def read(file: BinaryIO, path: Path) -> Trace:
    """Read an open log; raises TraceError naming the line (the header is line 1) that is wrong."""
    try:
        if file.readline(len(HEADER) + 2).rstrip(b"\r\n") != HEADER.encode():
            raise OtherForm
        events, failures = _all_rows(file)
    except OtherForm:
        file.seek(0)
        events, failures = _row_by_row(file)
    extra = {"format": "RMM log", "sizes": "requested"} | (
        {"failed_requests": failures} if failures else {}
    )
    provenance = Provenance(name=path.stem, kind="imported", source=path.name, extra=extra)
    trace = trace_of(events, provenance)
    return replace(trace, coverage=imported(trace.provenance))


def _all_rows(file: BinaryIO) -> tuple[AddressedEvents, int]:
    """The events of a log as RMM writes it, and the number of failed requests.

    Raises OtherForm for what RMM does not write, which may be wrong.
    """
    rows = rows_of(file)
    midnights = np.diff(rows.time_ns, prepend=0) < -_DAY // 2
    time_ns = rows.time_ns + _DAY * np.cumsum(midnights)
    label = np.zeros(len(rows.size), np.uint32)
    events = AddressedEvents(rows.is_alloc, rows.address, rows.size, rows.stream, label, time_ns)
    return events, rows.failures


def _row_by_row(file: BinaryIO) -> tuple[AddressedEvents, int]:
    """The events of a log, and the number of failed requests; raises TraceError."""
    is_alloc, failures = array("B"), 0
    address, size, stream, time = (array("Q") for _ in range(4))
    with io.TextIOWrapper(file, ENCODING, newline="") as text:
        rows = Rows(text, _has_columns)
        columns = list(rows.names or ())
        places = [columns.index(name) for name in _COLUMNS]
        day = before = 0
        for row in rows.filled(rows.delimiter.join(columns)):
            line, count = rows.line, len(rows.row)
            if count < len(columns):
                raise TraceError(f"line {line}: {count} fields, not {len(columns)}")
            when, action, pointer, requested, of = (row[place].strip() for place in places)
            if action == _FAILURE:
                failures += 1
                continue
            if action != _ALLOC and action not in _FREE:
                actions = ", ".join((_ALLOC, *_FREE, _FAILURE))
                raise TraceError(
                    f"line {line}: unknown action {_shown(action)}; known are {actions}"
                )
            now = _time(when, line)
            if now < before - _DAY // 2:
                day += _DAY
            before = now
            time.append(now + day)
            is_alloc.append(action == _ALLOC)
            address.append(_number(pointer, "pointer", line))
            size.append(_number(requested, "size", line))
            stream.append(_number(of, "stream", line))
    events = AddressedEvents(
        is_alloc=np.asarray(is_alloc).astype(np.bool_),
        address=np.asarray(address),
        size=np.asarray(size),
        stream=np.asarray(stream).astype(np.int64),
        label=np.zeros(len(size), np.uint32),
        time_ns=np.asarray(time).astype(np.int64),
    )
    return events, failures


def _time(text: str, line: int) -> int:
    """Nanoseconds since midnight or since any other moment."""
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds, fraction = match.groups("")
        whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    elif match := _SECONDS.fullmatch(text):
        seconds, fraction = match.groups("")
        whole = int(seconds)
    else:
        raise TraceError(f"line {line}: time {_shown(text)} is neither HH:MM:SS.FFFFFF nor seconds")
    return whole * _SECOND + int(fraction.ljust(9, "0"))


def _number(text: str, field: str, line: int) -> int:
    if text in ("(nil)", "(null)", "nullptr"):
        return 0
    if not _NUMBER.fullmatch(text) or (number := int(text, 16 if text[1:2] in "xX" else 10)) < 0:
        raise TraceError(f"line {line}: {field} {_shown(text)} is not a number")
    if number > MAX_SIZE:
        raise TraceError(f"line {line}: {field} {_shown(text)} is above {MAX_SIZE}")
    return number


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
