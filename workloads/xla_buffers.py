# SPDX-License-Identifier: Apache-2.0
"""Buffer assignments of XLA: the buffers of one program, and where XLA has placed them.

XLA writes them with XLA_FLAGS="--xla_dump_to=FOLDER --xla_dump_hlo_as_text": a file
...-buffer-assignment.txt, with allocations and the values in each, and a file ...-live-range.txt,
with the first and the last instruction that needs each value. The second is found beside the first,
or its text follows in the same file.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from sortedcontainers import SortedDict

from allocbench.base.error_text import HeldBuffer, MemoryDump, exact
from allocbench.workloads.block_lifetimes import Lifetimes
from allocbench.workloads.vocabulary import MAX_SIZE, TraceError

_MOST = 1 << 27  # bytes
_ASSIGNMENT, _RANGES = "buffer-assignment.txt", "live-range.txt"
_NUMBER = r"(\d{1,19})"
_ALLOCATION = re.compile(rf"allocation {_NUMBER}: (?:0x\w+, )?size {_NUMBER}(.{{0,10000}})")
_VALUE = re.compile(
    rf" +value: <\d+ (.{{1,1000}}?) @\d+> \(size={_NUMBER},offset={_NUMBER}\)(?:: (\S+))?"
)
_RANGE = re.compile(rf" +(\S{{1,1000}}):{_NUMBER}-{_NUMBER}")
_LATEST = 2**32 - 3  # instant
_KINDS = {
    "preallocated-temp": "temporary buffers",
    "parameter": "parameters",
    "constant": "constants",
    "live-out": "results",
    "output": "results",
    "thread-local": "buffers of threads",
}
TEMPORARY = _KINDS["preallocated-temp"]


@dataclass(frozen=True)
class XlaValue:
    """A value of the program. size, offset: bytes, in its allocation. first, last: instructions."""

    name: str
    size: int
    offset: int
    shape: str
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class XlaAllocation:
    """Memory that XLA asks for at once, and the values in it."""

    number: int
    size: int
    kind: str
    values: Sequence[XlaValue]


@dataclass(frozen=True)
class BufferAssignment:
    """The buffers of one program, and whether it is known when they are live."""

    allocations: Sequence[XlaAllocation]
    has_ranges: bool

    @property
    def temporary(self) -> Sequence[XlaAllocation]:
        """The allocations in which XLA itself places values."""
        return [one for one in self.allocations if one.kind == TEMPORARY]


def is_assignment(head: bytes) -> bool:
    """Whether a file with this beginning is a buffer assignment."""
    return re.match(rb"\s*BufferAssignment:", head) is not None


def parse_assignment(file: BinaryIO, path: Path) -> BufferAssignment:
    """Read a buffer assignment, and the file of live ranges beside it; raises TraceError."""
    text = _text(file)
    ranges = _ranges(text)
    if not ranges and path.name.endswith(_ASSIGNMENT):
        beside = path.with_name(path.name.removesuffix(_ASSIGNMENT) + _RANGES)
        if beside.is_file():
            with beside.open("rb") as other:
                ranges = _ranges(_text(other))
    found: list[tuple[re.Match[str], list[XlaValue]]] = []
    for line in text.partition("Used values:")[0].splitlines():
        if match := _ALLOCATION.match(line):
            found.append((match, []))
        elif found and (match := _VALUE.match(line)):
            name = match[1].removesuffix(" (phi)")
            limits = ranges.get(name) or ranges.get(f"{name}{{}}") or (None, None)
            found[-1][1].append(
                XlaValue(match[1], int(match[2]), int(match[3]), match[4] or "", *limits)
            )
    allocations = [
        XlaAllocation(int(match[1]), int(match[2]), _kind(match[3]), values)
        for match, values in found
    ]
    for allocation in allocations:
        ends = [value.offset + value.size for value in allocation.values]
        if max([allocation.size, *ends]) > min(allocation.size, MAX_SIZE):
            raise TraceError(
                f"allocation {allocation.number} of {allocation.size:,} bytes has a value that ends"
                f" at {max(ends, default=0):,}"
            )
    if not allocations:
        raise TraceError("is a buffer assignment of XLA without allocations")
    return BufferAssignment(allocations, bool(ranges))


def _text(file: BinaryIO) -> str:
    data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise TraceError(f"is a text of XLA of more than {_MOST:,} bytes")
    return data.decode("utf-8", "replace")


def _ranges(text: str) -> Mapping[str, tuple[int, int]]:
    """The first and the last instruction that needs each value, by its name with its index."""
    found = {}
    listed = text.partition("BufferLiveRange:")[2].partition("Live ranges at")[0]
    for match in filter(None, map(_RANGE.fullmatch, listed.splitlines())):
        first, last = int(match[2]), int(match[3])
        if first <= last <= _LATEST:
            found[match[1]] = first, last
    return found


def _kind(words: str) -> str:
    return next((kind for word, kind in _KINDS.items() if word in words), "other buffers")


def temporary_blocks(assignment: BufferAssignment) -> tuple[Lifetimes, Sequence[int], int]:
    """The temporary buffers as blocks, their offsets, and the height of XLA's own plan in bytes.

    Values that share bytes while both are live, such as an input that an operator overwrites, are
    one block. A value without a live range is live from beginning to end. Raises TraceError if
    nothing says when values are live, and if there are no temporary buffers.
    """
    if not assignment.has_ranges:
        raise TraceError(
            f"is a buffer assignment of XLA, which does not say when buffers are live; keep the"
            f" file ...{_RANGES} of the same folder beside it"
        )
    end = max(
        (value.last or 0 for one in assignment.allocations for value in one.values), default=0
    )
    rows: list[tuple[str, int, int, int, int]] = []
    base = 0
    for allocation in assignment.temporary:
        for name, size, offset, first, last in _shared(allocation.values, end):
            rows.append((name, size, base + offset, first, last))
        base += allocation.size
    if not rows:
        raise TraceError("is a buffer assignment of XLA without temporary buffers")
    blocks = Lifetimes(
        [row[0] for row in rows],
        np.array([row[1] for row in rows], np.uint64),
        np.array([row[3] for row in rows], np.uint32),
        np.array([row[4] + 1 for row in rows], np.uint32),
    )
    return blocks, [row[2] for row in rows], base


def alignment_of(offsets: Sequence[int], most: int) -> int:
    """The largest power of two, up to `most`, that divides all offsets in bytes."""
    together = most
    for offset in offsets:
        together |= offset
    return together & -together


def _shared(values: Sequence[XlaValue], end: int) -> list[tuple[str, int, int, int, int]]:
    """Blocks of values: name, size, offset, first and last instruction."""
    live = SortedDict[int, list[int]]()  # begin of bytes -> end, last instruction, number
    blocks: list[list[int]] = []  # begin, end, first, last
    names: list[str] = []
    ranges = [
        (0 if value.first is None else value.first, end if value.last is None else value.last)
        for value in values
    ]
    for n in sorted(range(len(values)), key=lambda n: (ranges[n][0], values[n].offset)):
        value, (first, last) = values[n], ranges[n]
        if not value.size:
            continue
        begin, stop = value.offset, value.offset + value.size
        touched = []
        position = max(0, live.bisect_right(begin) - 1)
        for key in live.islice(position):
            if key >= stop:
                break
            if live[key][0] > begin:
                touched.append(key)
        merged: list[int] = []
        for key in touched:
            _, until, number = live.pop(key)
            if until >= first:
                merged.append(number)
        if not merged:
            blocks.append([begin, stop, first, last])
            names.append(value.name)
            live[begin] = [stop, last, len(blocks) - 1]
            continue
        into = blocks[merged[0]]
        for other in [blocks[number] for number in merged[1:]] + [[begin, stop, first, last]]:
            into[:] = (
                *(min(into[0], other[0]), max(into[1], other[1])),
                *(min(into[2], other[2]), max(into[3], other[3])),
            )
        for number in merged[1:]:
            blocks[number] = []
        live[into[0]] = [into[1], into[3], merged[0]]
    return [
        (name, block[1] - block[0], block[0], block[2], block[3])
        for name, block in zip(names, blocks, strict=True)
        if block
    ]


def read_held(file: BinaryIO, path: Path) -> MemoryDump:
    """What a program holds, by kind, and its largest buffers; raises TraceError.

    Of the temporary buffers, those of the instant at which they take the most.
    """
    assignment = parse_assignment(file, path)
    kinds = defaultdict[str, int](int)
    rows = []
    for allocation in assignment.allocations:
        kinds[allocation.kind] += allocation.size
        for value in _at_the_peak(allocation.values):
            name = " ".join(filter(None, (value.name, value.shape)))
            rows.append(HeldBuffer(exact(value.size), f"{name} ({allocation.kind})"))
    return MemoryDump(
        "a buffer assignment of XLA",
        "while the program runs",
        [HeldBuffer(exact(size), kind) for kind, size in kinds.items() if size],
        sorted(rows, key=lambda row: row.size.low, reverse=True),
    )


def _at_the_peak(values: Sequence[XlaValue]) -> Sequence[XlaValue]:
    """The values when most bytes are in use; without live ranges, the largest at each offset."""
    by_size = sorted(values, key=lambda value: value.size)
    if any(value.last is None for value in values):
        return list({value.offset: value for value in by_size}.values())
    blocks = _shared(values, 0)
    changes = defaultdict[int, int](int)
    for _, size, _, first, last in blocks:
        changes[first] += size
        changes[last + 1] -= size
    load = peak = at = 0
    for instant in sorted(changes):
        load += changes[instant]
        if load > peak:
            peak, at = load, instant
    named = {value.name: value for value in values}
    return [named[name] for name, _, _, first, last in blocks if first <= at <= last]
