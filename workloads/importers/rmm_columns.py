# SPDX-License-Identifier: Apache-2.0
"""The rows of an RMM log as RMM writes them, read as columns.

    2342727,15:47:02.841961,allocate,0x7f0012400000,1048576,0x0

Rows of any other form are left to `rmm_log`, which reads one row at a time and names the line of
an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

_BLOCK = 1 << 24  # bytes read at a time
_CLOCK = np.frombuffer(b"00:00:00.000000", np.uint8)
_CLOCK_SCALES = np.array(
    [36e12, 36e11, 0, 6e11, 6e10, 0, 1e10, 1e9, 0, 1e8, 1e7, 1e6, 1e5, 1e4, 1e3]
)
_NO_DIGIT = 255
_MOST_DIGITS = {10: 19, 16: 16}


class OtherForm(Exception):  # noqa: N818  not an error: another reader takes over
    """A row has a form that RMM does not write."""


class Rows(NamedTuple):
    """n rows: action, text of the stream: dictionary arrays (n,). time_ns: int64 (n,), since
    midnight. address, size: uint64 (n,). left_out: how many rows were left out.
    """

    action: pa.DictionaryArray
    stream: pa.DictionaryArray
    time_ns: NDArray[np.int64]
    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    left_out: int


def rows_of(file: BinaryIO, columns: list[str], without: str) -> Iterator[Rows]:
    """The rows of an open log, some at a time, without those with a certain action.

    columns: the names in the header. Raises OtherForm.
    """
    word = pa.dictionary(pa.int32(), pa.string())
    thread, time, action, pointer, size, stream = columns
    kinds = {thread: pa.string(), time: pa.string(), pointer: pa.string(), size: pa.string()}
    try:
        reader = pyarrow.csv.open_csv(
            pa.PythonFile(file, mode="r"),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            pyarrow.csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            pyarrow.csv.ConvertOptions(column_types=kinds | {action: word, stream: word}),
        )
        for batch in reader:
            actions = batch.column(action)
            names = actions.dictionary.to_pylist()
            whole = len(batch)
            if without in names:
                kept = actions.indices.to_numpy() != names.index(without)
                batch = batch.filter(pa.array(kept))
            yield Rows(
                batch.column(action),
                batch.column(stream),
                _times(batch.column(time)),
                _numbers(batch.column(pointer), "0x", 16),
                _numbers(batch.column(size), "", 10),
                whole - len(batch),
            )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise OtherForm from error


def _bytes(texts: pa.StringArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all texts, and n + 1 positions: where each one begins and the last one ends."""
    _, offsets, data = texts.buffers()
    count = len(texts)
    begin = np.frombuffer(offsets, np.int32, count + 1, 4 * texts.offset).astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), begin


def _times(texts: pa.StringArray) -> NDArray[np.int64]:
    """Nanoseconds of HH:MM:SS.FFFFFF."""
    data, begin = _bytes(texts)
    if np.any(np.diff(begin) != len(_CLOCK)):
        raise OtherForm
    letters = data[begin[0] : begin[-1]].reshape(-1, len(_CLOCK)) - _CLOCK
    digits = ord("0") == _CLOCK
    if np.any(letters > np.where(digits, 9, 0)):
        raise OtherForm
    time = np.zeros(len(letters), np.int64)
    for place in np.flatnonzero(digits).tolist():
        time += letters[:, place] * np.int64(_CLOCK_SCALES[place])
    return time


def _numbers(texts: pa.StringArray, prefix: str, base: int) -> NDArray[np.uint64]:
    """uint64 of numbers with a prefix."""
    data, begin = _bytes(texts)
    first, end = begin[:-1] + len(prefix), begin[1:]
    length = end - first
    if np.any(length < 1) or np.any(length > _MOST_DIGITS[base]):
        raise OtherForm
    for place, letter in enumerate(prefix):
        if np.any(data[begin[:-1] + place] != ord(letter)):
            raise OtherForm
    values = np.full(256, _NO_DIGIT, np.uint8)
    for value, letter in enumerate("0123456789abcdef"[:base]):
        values[[ord(letter), ord(letter.upper())]] = value
    number = np.zeros(len(length), np.uint64)
    rows: Any = slice(None)
    for place in range(int(length.max(initial=0))):
        if place == int(length[rows].min(initial=place + 1)):
            rows = np.flatnonzero(length > place)
        digit = values[data[end[rows] - 1 - place]]
        if np.any(digit == _NO_DIGIT):
            raise OtherForm
        number[rows] += digit * np.uint64(base**place)
    return number
