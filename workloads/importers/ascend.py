# SPDX-License-Identifier: Apache-2.0
"""operator_memory.csv of the Ascend PyTorch profiler: a row for each block, with its lifetime.

    Name,Size(KB),Allocation Time(us),Release Time(us),...,Device Type
    aten::mm,8192.0,1700000000000120.0,1700000000000300.0,...,NPU:0

A block without a time of its allocation was there before the recording, and one without a time of
its release stays. At one instant, blocks are freed before others are allocated.
"""

import io
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import BinaryIO

from allocbench.workloads.coverage import imported
from allocbench.workloads.csv_dialect import ENCODING, Rows, first_line, header, short
from allocbench.workloads.events import Events
from allocbench.workloads.trace import MAX_SIZE, Provenance, Trace, TraceError

_COLUMNS = ("name", "size(kb)", "allocation time(us)", "release time(us)", "device type")
_ABSENT = ("", "n/a", "na")


def is_operator_memory(head: bytes) -> bool:
    """Whether a file that begins with these bytes is operator_memory.csv."""
    return header(first_line(head), _has_columns)[1] is not None


def _has_columns(names: Sequence[str]) -> bool:
    return all(names.count(name) == 1 for name in _COLUMNS)


def read(file: BinaryIO, path: Path, *, device: str | int | None = None) -> Trace:
    """Read the blocks of one device; raises TraceError naming the line that is wrong."""
    devices: dict[str, list[tuple[int, bool, int, int]]] = {}
    blocks: list[tuple[str, int]] = []  # label and bytes
    with io.TextIOWrapper(file, ENCODING, newline="") as text:
        rows = Rows(text, _has_columns)
        places = [list(rows.names or ()).index(name) for name in _COLUMNS]
        for row in rows.filled(rows.delimiter.join(_COLUMNS)):
            label, size, begin, end, of = (row[place].strip() for place in places)
            bytes_ = _whole(size, 1024, "size", rows.line)
            if not bytes_:
                continue
            steps = devices.setdefault(of, [])
            born = _whole(begin, 1000, "allocation time", rows.line, absent=-1)
            steps.append((born, True, len(blocks), 0))
            if end.lower() not in _ABSENT:
                died = max(_whole(end, 1000, "release time", rows.line), born)
                steps.append((died, False, len(blocks), born == died))
            blocks.append((label, bytes_))
    chosen = _choose(device, devices)
    events, ids = Events(), dict[int, int]()
    ordered = sorted(devices[chosen], key=lambda step: (step[0], step[3], step[1]))
    start = next((time for time, *_ in ordered if time >= 0), 0)
    for time, begins, block, _ in ordered:
        events.at(max(0, time - start))
        if begins:
            ids[block] = events.alloc(blocks[block][1], blocks[block][0])
        else:
            events.free(ids.pop(block))
    extra = {"format": "Ascend operator memory", "sizes": "allocated"}
    held = sum(time < 0 for time, begins, *_ in ordered if begins)
    provenance = Provenance.of_file(path, device=chosen, live_at_start=held, extra=extra)
    return replace(events.trace(provenance), coverage=imported(provenance))


def _whole(text: str, scale: int, what: str, line: int, absent: int | None = None) -> int:
    """A number of a row times a scale, rounded."""
    if absent is not None and text.lower() in _ABSENT:
        return absent
    try:
        number = Decimal(text) * scale if len(text) <= 40 else Decimal("NaN")
        if 0 <= number <= MAX_SIZE:
            return round(number)
    except InvalidOperation:
        pass
    raise TraceError(f"line {line}: {what} '{short(text)}' is not a number from 0 on")


def _choose(device: str | int | None, devices: dict[str, list[tuple[int, bool, int, int]]]) -> str:
    """The name of the selected device."""
    if not devices:
        raise TraceError("holds no events")
    named = [
        name for name in devices if device is None or str(device) in (name, name.partition(":")[2])
    ]
    if len(named) != 1:
        listed = ", ".join(sorted(map(short, devices)))
        asked = "; choose one: FILE:device=N" if device is None else f", and not '{device}'"
        raise TraceError(f"holds the blocks of {listed}{asked}")
    return named[0]
