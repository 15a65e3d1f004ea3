# SPDX-License-Identifier: Apache-2.0
"""Request logs of real services. The format is detected from the first line.

Azure (2023, 2024), CSV: TIMESTAMP,ContextTokens,GeneratedTokens; the timestamp is a date and time.
    github.com/Azure/AzurePublicDataset; Patel et al., Splitwise, ISCA 2024.
BurstGPT, CSV: Timestamp,Model,Request tokens,Response tokens,...; the timestamp is in seconds.
        Later releases have more columns; columns are found by name. github.com/HPMLL/BurstGPT.
Mooncake, JSON lines: timestamp (ms), input_length, output_length and hash_ids, with one id for each
    block of 512 tokens of the prompt. github.com/kvcache-ai/Mooncake; Qin et al., FAST 2025.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from allocbench.workloads.serving.requests import Requests
from allocbench.workloads.trace import MAX_SIZE, TraceError

MOST_TOKENS = 10**8 - 1
_MOST_MILLISECONDS = 10**15
_MOST_SHOWN = 40  # characters of a value in a message
"""Limit of the tokens of a prompt or of an answer."""
_COUNT = "[0-9]{1,8}"
_NUMBER = r"[0-9]{1,15}(\.[0-9]+)?"
_ZONE = r"(Z|\+00:00)$"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|\+00:00)?"
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURST = ("Timestamp", "Request tokens", "Response tokens")
_MOONCAKE = ("timestamp", "input_length", "output_length")


def is_log(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a request log."""
    return _reader(head) is not None


def read(file: BinaryIO) -> Requests:
    """Read an open log. Raises TraceError with the line that is invalid."""
    head = file.read(1 << 16)
    file.seek(0)
    if (reader := _reader(head)) is None:
        raise TraceError("is not a log of requests")
    return reader(file)


def _reader(head: bytes) -> Callable[[BinaryIO], Requests] | None:
    """The reader for a file that begins with these bytes."""
    columns = set(_header(head))
    if set(_AZURE) <= columns:
        return _read_azure
    if set(_BURST) <= columns:
        return _read_burstgpt
    return _read_mooncake if _is_mooncake(head) else None


def _is_mooncake(head: bytes) -> bool:
    line, newline, _ = head.partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if not newline:  # the first line is longer than the head
        return all(f'"{name}"'.encode() in line for name in _MOONCAKE)
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and set(_MOONCAKE) <= first.keys()


def _read_azure(file: BinaryIO) -> Requests:
    when, asked, answered = _columns(file, _AZURE)
    stamps = pc.replace_substring_regex(_like(when, _AZURE[0], _TIME, "date and time"), _ZONE, "")
    seconds = stamps.cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy() / 1e9
    return _requests(seconds, _counts(asked, _AZURE[1]), _counts(answered, _AZURE[2]))


def _read_burstgpt(file: BinaryIO) -> Requests:
    when, asked, answered = _columns(file, _BURST)
    seconds = _like(when, _BURST[0], _NUMBER, "number").cast(pa.float64()).to_numpy()
    return _requests(seconds, _counts(asked, _BURST[1]), _counts(answered, _BURST[2]))


def _read_mooncake(file: BinaryIO) -> Requests:
    rows, prefix = [], []
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            values = [row[name] for name in _MOONCAKE]
            ids = row.get("hash_ids", [])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no '{error.args[0]}'" if isinstance(error, KeyError) else "not a JSON object"
            raise TraceError(f"line {number}: {what}") from error
        for name, value in zip(_MOONCAKE, values, strict=True):
            whole = isinstance(value, int) and not isinstance(value, bool)
            most = MOST_TOKENS if name != "timestamp" else _MOST_MILLISECONDS
            if not whole or not 0 <= value <= most:
                shown = str(value)[:_MOST_SHOWN]
                raise TraceError(
                    f"line {number}: {name} '{shown}' is not a whole number from 0 to {most:,}"
                )
        if not isinstance(ids, list) or not all(isinstance(block_id, int) for block_id in ids):
            raise TraceError(f"line {number}: hash_ids is not a list of whole numbers")
        if any(abs(block_id) > MAX_SIZE for block_id in ids):  # many would have the same hash
            raise TraceError(f"line {number}: a number in hash_ids is above {MAX_SIZE:,}")
        rows.append(values)
        prefix.append(ids)
    if not rows:
        raise TraceError("holds no requests")
    milliseconds, prompt, output = np.array(rows, np.int64).T
    return _requests(milliseconds / 1e3, prompt, output, prefix)


def _header(head: bytes) -> list[str]:
    """The column names of a CSV that begins with these bytes."""
    line = head.partition(b"\n")[0].decode("utf-8-sig", "replace")
    return [name.strip(' "') for name in line.strip().split(",")]


def _columns(file: BinaryIO, names: Sequence[str]) -> list[pa.StringArray]:
    """Columns of a CSV by name, as text."""
    convert = pacsv.ConvertOptions(
        include_columns=names, column_types=dict.fromkeys(names, pa.string()), null_values=[]
    )
    table = pacsv.read_csv(file, convert_options=convert)
    if not len(table):
        raise TraceError("holds no requests")
    return [table[name].combine_chunks() for name in names]


def _like(column: pa.StringArray, name: str, pattern: str, what: str) -> pa.StringArray:
    """The column; raises TraceError for the first value that does not match the pattern."""
    fits = pc.match_substring_regex(column, f"^{pattern}$").to_numpy(zero_copy_only=False)
    if not fits.all():
        row = int(fits.argmin())
        text = column[row].as_py()[:40]
        raise TraceError(f"line {row + 2}: {name} {text!r} is not a {what}")
    return column


def _counts(column: pa.StringArray, name: str) -> NDArray[np.int64]:
    whole = _like(column, name, _COUNT, "whole number")
    numbers: NDArray[np.int64] = whole.cast(pa.int64()).to_numpy()
    return numbers


def _requests(
    seconds: NDArray[np.float64],
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    prefix: Sequence[Sequence[int]] | None = None,
) -> Requests:
    """Requests in order of arrival, without those that have no prompt or no answer tokens."""
    order = np.argsort(seconds, kind="stable")
    order = order[(prompt[order] > 0) & (output[order] > 0)]
    if not len(order):
        raise TraceError("contains no request that was answered")
    return Requests(
        arrival=seconds[order] - seconds[order[0]],
        prompt=prompt[order],
        output=output[order],
        prefix=None if prefix is None else [prefix[n] for n in order.tolist()],
        skipped=len(seconds) - len(order),
    )
