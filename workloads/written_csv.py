# SPDX-License-Identifier: Apache-2.0
"""Traces as CSV the way people and other programs write it; `plain_csv` is the way we write it.

The rule is in docs/formats.md. Each row is checked as it is read, so that an error shows the line.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from allocbench.workloads.trace import ALLOC, FREE, MAX_SIZE, Provenance, Trace, TraceError

COLUMNS = ("op", "id", "size")
_DELIMITERS = ",;\t|"
_ALLOCS = frozenset({"a", "alloc", "malloc"})
_FREES = frozenset({"f", "free"})
_NUMBER = re.compile(r"([0-9]+)(?:\.0*)?|[0-9]+\.?[0-9]*e\+?[0-9]{1,2}", re.IGNORECASE | re.ASCII)
_MOST_SHOWN = 60  # letters of a line


def is_written(head: bytes) -> bool:
    """Whether a file that begins so is a CSV with a column `op`."""
    return _header(head.partition(b"\n")[0].decode("utf-8-sig", "replace"))[1] is not None


def read_written(file: BinaryIO, path: Path) -> Trace:
    """Read the trace of an open CSV file, named by its path.

    Raises TraceError showing the first line that breaks the rule, and what was expected.
    """
    with io.TextIOWrapper(file, "utf-8-sig", "backslashreplace", newline="") as text:
        return _Reader(text).read(path)


@dataclass
class _Live:
    """A live block: its number in the trace, its bytes, and the line that allocated it."""

    block: int
    size: int
    line: int


class _Reader:
    def __init__(self, text: io.TextIOWrapper) -> None:
        header = text.readline()
        self.delimiter, names = _header(header)
        self.rows = csv.reader(text, delimiter=self.delimiter, strict=True)
        self.line, self.row = 1, [header.strip()]
        if names is None:
            self.refuse("the header lacks the column op", "the columns op, id and size")
        missing = [name for name in COLUMNS if name not in names]
        twice = [name for name in COLUMNS if names.count(name) > 1]
        if missing:
            found = f"the header lacks the column{'s' * (len(missing) > 1)} {' and '.join(missing)}"
            self.refuse(found, "the columns op, id and size")
        if twice:
            self.refuse(f"the header has the column {twice[0]} twice", "it once")
        self.columns = len(names)
        self.places = [names.index(name) for name in COLUMNS]
        alloc, free = self._example(names, "a", "SIZE"), self._example(names, "f", "")
        self.alloc_row, self.free_row = f"{alloc} for an alloc", f"{free} for a free"

    def read(self, path: Path) -> Trace:
        op, block, size = array("B"), array("I"), array("Q")
        live: dict[str, _Live] = {}
        blocks = 0
        for word, name, asked in self._fields():
            if word in _ALLOCS:
                if name in live:
                    self.refuse(
                        f"block {name} is live: line {live[name].line} allocated it",
                        "its free first, or another id",
                    )
                bytes_ = self._alloc_size(asked)
                live[name] = _Live(blocks, bytes_, self.line)
                op.append(ALLOC)
                block.append(blocks)
                size.append(bytes_)
                blocks += 1
            elif word in _FREES:
                if name not in live:
                    self.refuse(
                        f"block {name} is not live",
                        "the id of a block that was allocated and not yet freed",
                    )
                ended = live.pop(name)
                if asked:
                    self._check_free(name, asked, ended)
                op.append(FREE)
                block.append(ended.block)
                size.append(0)
            else:
                self.refuse(
                    f"op '{_short(word)}' is unknown", f"{self.alloc_row} or {self.free_row}"
                )
        return Trace(
            op=np.array(op, np.uint8),
            block=np.array(block, np.uint32),
            size=np.array(size, np.uint64),
            stream=np.zeros(len(op), np.uint16),
            provenance=Provenance(name=path.stem, kind="imported", source=path.name),
        )

    def _fields(self) -> Iterator[tuple[str, str, str]]:
        """Op in small letters, id and size of each row that is not empty."""
        at_op, at_id, at_size = self.places
        most, before = self.columns, 0
        try:
            for row in self.rows:
                self.line, self.row = before + 2, row  # the header is line 1
                before = self.rows.line_num
                count = len(row)
                if count > most:
                    if any(field.strip() for field in row[most:]):
                        self.refuse(f"{count} fields under {most} columns", self.alloc_row)
                elif count < most:
                    if not any(field.strip() for field in row):
                        continue
                    row = [*row, *[""] * (most - count)]
                word, name = row[at_op].strip().lower(), row[at_id].strip()
                if not name:
                    if not any(field.strip() for field in row):
                        continue
                    self.refuse(
                        "the id is missing", self.free_row if word in _FREES else self.alloc_row
                    )
                yield word, name, row[at_size].strip()
        except csv.Error as error:
            raise TraceError(
                f"line {before + 2}: {error}; expected a row of CSV, its quotes closed"
            ) from error

    def _alloc_size(self, text: str) -> int:
        size = self._number(text)
        if not text:
            self.refuse("the size is missing", self.alloc_row)
        if size is None or not 1 <= size <= MAX_SIZE:
            self.refuse(
                f"size '{_short(text)}' is not a whole number of bytes from 1 to {MAX_SIZE}",
                self.alloc_row,
            )
        return size

    def _check_free(self, name: str, text: str, ended: _Live) -> None:
        """A free may repeat the size of its block; 0 says nothing."""
        size = self._number(text)
        if size is None:
            self.refuse(f"size '{_short(text)}' is not a whole number of bytes", self.free_row)
        if size not in (0, ended.size):
            self.refuse(
                f"size {size} is not that of block {name}, which line {ended.line} allocated"
                f" with {ended.size} bytes",
                f"{ended.size} or no size",
            )

    def _number(self, text: str) -> int | None:
        """A whole number, which may have a fraction of zeros or an exponent."""
        if text.isdecimal() and text.isascii():
            return int(text) if len(text) <= 20 else None
        if self.delimiter != ",":
            text = text.replace(",", ".")
        found = _NUMBER.fullmatch(text)
        if not found or len(text) > 40:
            return None
        number = Decimal(text)
        return int(number) if number == number.to_integral_value() else None

    def _example(self, names: Sequence[str], op: str, size: str) -> str:
        """A row in the columns of the file."""
        fields = {"op": op, "id": "ID", "size": size}
        return self.delimiter.join(fields.get(name, "...") for name in names)

    def refuse(self, what: str, expected: str) -> NoReturn:
        row = _short(self.delimiter.join(self.row), _MOST_SHOWN)
        raise TraceError(f"line {self.line}: '{row}': {what}; expected {expected}")


def _header(line: str) -> tuple[str, Sequence[str] | None]:
    """The delimiter of a header and its columns in small letters; None when `op` is not there."""
    for delimiter in _DELIMITERS:
        try:
            (fields,) = csv.reader([line.rstrip("\r\n")], delimiter=delimiter)
        except (csv.Error, ValueError):
            continue
        names = [field.strip().lower() for field in fields]
        if "op" in names and (len(names) > 1 or delimiter == _DELIMITERS[-1]):
            return delimiter, names
    return ",", None


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
