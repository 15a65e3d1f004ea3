# SPDX-License-Identifier: Apache-2.0
"""Traces in CSV as people and other programs write it; `plain_csv` reads and writes our own CSV.

docs/formats.md states the rules. Each row is checked as it is read, so errors name the line.
"""

import csv
import io
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from allocbench.workloads.coverage import WHOLE, Coverage, from_json, to_json
from allocbench.workloads.csv_dialect import ENCODING, Rows, first_line, header, short, whole_number
from allocbench.workloads.pool_csv import PoolColumns
from allocbench.workloads.trace import ALLOC, FREE, MAX_SIZE, Provenance, Trace, TraceError
from allocbench.workloads.vocabulary import POOL_EVENTS

COLUMNS = ("op", "id", "size")
_ALLOCS = frozenset({"a", "alloc", "malloc", "allocate"})
_FREES = frozenset({"f", "free", "deallocate"})
_POOL_ROWS = frozenset({"trim", *POOL_EVENTS})


PART = "part"
"""The op of a row that says which part of its program a trace is, as JSON in the column id."""


def part_row(coverage: Coverage) -> str:
    """The row of a coverage."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([PART, json.dumps(to_json(coverage)), ""])
    return text.getvalue()


def coverage_in(line: str) -> Coverage | None:
    """The coverage of a row that `part_row` wrote; None for any other line."""
    try:
        rows = [*csv.reader([line])] if line.startswith(f"{PART},") else []
        return from_json(json.loads(rows[0][1])) if rows else None
    except (ValueError, csv.Error, TraceError):
        return None


def is_written(head: bytes) -> bool:
    """Whether a file with this beginning is a CSV with a column `op`."""
    return header(first_line(head), _has_op)[1] is not None


def _has_op(names: Sequence[str]) -> bool:
    return "op" in names


def read_written(file: BinaryIO, path: Path) -> Trace:
    """Read the trace of an open CSV file, named by its path.

    Raises TraceError showing the first line that breaks the rule, and what was expected.
    """
    with io.TextIOWrapper(file, ENCODING, "backslashreplace", newline="") as text:
        return _Reader(text).read(path)


@dataclass
class _Live:
    """A live block: its number in the trace, its bytes, and the line that allocated it."""

    block: int
    size: int
    line: int


class _Reader:
    def __init__(self, text: io.TextIOWrapper) -> None:
        self.rows = Rows(text, _has_op)
        self.delimiter, names = self.rows.delimiter, self.rows.names
        self.refuse = self.rows.refuse
        if names is None:
            self.refuse("the header lacks the column op", "the columns op, id and size")
        missing = [name for name in COLUMNS if name not in names]
        twice = [name for name in COLUMNS if names.count(name) > 1]
        if missing:
            complaint = (
                f"the header lacks the column{'s' * (len(missing) > 1)} {' and '.join(missing)}"
            )
            self.refuse(complaint, "the columns op, id and size")
        if twice:
            self.refuse(f"the header has the column {twice[0]} twice", "it once")
        self.places = [names.index(name) for name in COLUMNS]
        self.pools = PoolColumns(self.delimiter, self.refuse) if "pool" in names else None
        self.at_pool = names.index("pool") if self.pools else -1
        self.at_stream = names.index("stream") if self.pools and "stream" in names else -1
        alloc, free = self._example(names, "a", "SIZE"), self._example(names, "f", "")
        self.alloc_row, self.free_row = f"{alloc} for an alloc", f"{free} for a free"

    def read(self, path: Path) -> Trace:
        op, block, size, stream, pool = (array(code) for code in "BIQHH")
        live: dict[str, _Live] = {}
        blocks = 0
        coverage = WHOLE
        for word, name, size_text, on, owner in self._fields():
            if word == PART:
                coverage = self._coverage(name)
                continue
            if self.pools:
                stream.append(self.pools.stream(on))
                pool.append(self.pools.pool(owner))
            if self.pools and word in _POOL_ROWS:
                event = self.pools.event(word, name, owner), 0, 0
            elif word in _ALLOCS:
                if name in live:
                    self.refuse(
                        f"block {name} is live: line {live[name].line} allocated it",
                        "its free first, or another id",
                    )
                bytes_ = self._alloc_size(size_text)
                live[name] = _Live(blocks, bytes_, self.rows.line)
                event = ALLOC, blocks, bytes_
                blocks += 1
            elif word in _FREES:
                if name not in live:
                    self.refuse(
                        f"block {name} is not live",
                        "the id of a block that was allocated and not yet freed",
                    )
                ended = live.pop(name)
                if size_text:
                    self._check_free(name, size_text, ended)
                event = FREE, ended.block, 0
            else:
                self.refuse(
                    f"op '{short(word)}' is unknown", f"{self.alloc_row} or {self.free_row}"
                )
            for column, value in zip((op, block, size), event, strict=True):
                column.append(value)
        return Trace(
            op=np.array(op, np.uint8),
            block=np.array(block, np.uint32),
            size=np.array(size, np.uint64),
            stream=np.array(stream, np.uint16) if self.pools else np.zeros(len(op), np.uint16),
            pool=np.array(pool, np.uint16) if self.pools else None,
            pools=self.pools.pools if self.pools else (),
            provenance=Provenance.of_file(path),
            coverage=coverage,
        )

    def _coverage(self, text: str) -> Coverage:
        try:
            return from_json(json.loads(text))
        except (ValueError, RecursionError, TraceError) as error:
            expected = "JSON as allocbench writes it, or no such row"
            self.refuse(f"the id does not say which part of a program this is: {error}", expected)

    def _fields(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Op in lower case, id, size, stream and pool of each row that is not empty."""
        at_op, at_id, at_size = self.places
        for row in self.rows.filled(self.alloc_row):
            word, name = row[at_op].strip().lower(), row[at_id].strip()
            if not name and not (self.pools and word in _POOL_ROWS):
                if not any(field.strip() for field in row):
                    continue
                self.refuse(
                    "the id is missing", self.free_row if word in _FREES else self.alloc_row
                )
            on = row[self.at_stream].strip() if self.at_stream >= 0 else ""
            owner = row[self.at_pool].strip() if self.pools else ""
            yield word, name, row[at_size].strip(), on, owner

    def _alloc_size(self, text: str) -> int:
        size = whole_number(text, self.delimiter)
        if not text:
            self.refuse("the size is missing", self.alloc_row)
        if size is None or not 1 <= size <= MAX_SIZE:
            self.refuse(
                f"size '{short(text)}' is not a whole number of bytes from 1 to {MAX_SIZE}",
                self.alloc_row,
            )
        return size

    def _check_free(self, name: str, text: str, ended: _Live) -> None:
        """A free may repeat the size of its block, or give 0."""
        size = whole_number(text, self.delimiter)
        if size is None:
            self.refuse(f"size '{short(text)}' is not a whole number of bytes", self.free_row)
        if size not in (0, ended.size):
            self.refuse(
                f"size {size} is not that of block {name}, which line {ended.line} allocated"
                f" with {ended.size} bytes",
                f"{ended.size} or no size",
            )

    def _example(self, names: Sequence[str], op: str, size: str) -> str:
        """A row in the columns of the file."""
        fields = {"op": op, "id": "ID", "size": size}
        return self.delimiter.join(fields.get(name, "...") for name in names)
