# SPDX-License-Identifier: Apache-2.0
"""CSV as people and other programs write it: delimiters, headers and numbers.

The rule is in docs/formats.md.
"""

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain
from typing import IO, NoReturn

from allocbench.workloads.vocabulary import TraceError

ENCODING = "utf-8-sig"  # a byte order mark is dropped
_DELIMITERS = ",;\t|"
_NUMBER = re.compile(r"([0-9]+)(?:\.0*)?|[0-9]+\.?[0-9]*e\+?[0-9]{1,2}", re.IGNORECASE | re.ASCII)
_MAYBE_THOUSANDS = re.compile(r"[0-9]{1,3}[.,]000", re.ASCII)
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}", re.ASCII)
_MOST_SHOWN = 60  # letters of a line


def first_line(head: bytes) -> str:
    """The first line of a file with this beginning, without empty lines before it."""
    lines = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    return lines.partition(b"\n")[0].decode("utf-8", "replace")


def header(
    line: str, is_wanted: Callable[[Sequence[str]], bool]
) -> tuple[str, Sequence[str] | None]:
    """The delimiter of a header and its columns in lower case; None if they are not wanted."""
    for delimiter in _DELIMITERS:
        try:
            (fields,) = csv.reader(
                [line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True
            )
        except (csv.Error, ValueError):
            continue
        names = [field.strip().lower() for field in fields]
        if is_wanted(names) and (len(names) > 1 or delimiter == _DELIMITERS[-1]):
            return delimiter, names
    return ",", None


def whole_number(text: str, delimiter: str) -> int | None:
    """A whole number, which may have a fraction of zeros or an exponent; None for other text.

    It may be hexadecimal with 0x. If the delimiter is not a comma, a decimal comma is accepted, and
    text such as 1.000 or 1,000 is not a number, because it may mean 1 or 1000.
    """
    if text.isdecimal() and text.isascii():
        return int(text) if len(text) <= 20 else None
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if delimiter != ",":
        if _MAYBE_THOUSANDS.fullmatch(text):
            return None
        text = text.replace(",", ".")
    match = _NUMBER.fullmatch(text)
    if not match or len(text) > 40:
        return None
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else None


def short(text: str, most: int = 40) -> str:
    """The text, cut to that many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


class Rows:
    """A CSV whose header is wanted: its rows, and the line number of the current row.

    Lines are counted from 1. Empty lines before the header are skipped. names: the columns in lower
    case, or None if the header is not wanted. columns: of a file that has commas and no header.
    """

    def __init__(
        self,
        text: IO[str],
        is_wanted: Callable[[Sequence[str]], bool],
        columns: Sequence[str] | None = None,
    ) -> None:
        self.line = 1
        while (head := text.readline()) and not head.strip("\r\n"):
            self.line += 1
        self.delimiter, self.names = header(head, is_wanted)
        self.row = [head.strip()]
        lines: Iterable[str] = text
        if self.names is None and columns is not None:
            self.names, lines = columns, chain([head], text)
            self.line -= 1
        self._rows = csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True, strict=True)

    def filled(self, example: str) -> Iterator[list[str]]:
        """The rows that are not empty, each with a field for every column.

        example: a row as it is expected, for the error. Raises TraceError.
        """
        most, head, before = len(self.names or ()), self.line, 0
        try:
            for row in self._rows:
                self.line, self.row = head + before + 1, row
                before = self._rows.line_num
                count = len(row)
                if count > most:
                    if any(field.strip() for field in row[most:]):
                        self.refuse(f"{count} fields for {most} columns", example)
                elif count < most:
                    if not any(field.strip() for field in row):
                        continue
                    row = [*row, *[""] * (most - count)]
                yield row
        except csv.Error as error:
            self.line = head + before + 1
            raise TraceError(
                f"line {self.line}: {error}; expected a row of CSV, its quotes closed"
            ) from error

    def refuse(self, what: str, expected: str) -> NoReturn:
        """Raise TraceError, which shows the current row."""
        row = short(self.delimiter.join(self.row), _MOST_SHOWN)
        raise TraceError(f"line {self.line}: '{row}': {what}; expected {expected}")
