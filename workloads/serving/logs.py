# SPDX-License-Identifier: Apache-2.0
"""Request logs of real services. The format is detected from the first line.

A CSV of another program is read if its columns can be recognized by what they mean: `_MEANINGS`.

CSV may have any form of `csv_dialect`, and its columns are found by name, in upper or lower case.

Azure (2023, 2024), CSV: TIMESTAMP,ContextTokens,GeneratedTokens; the timestamp is a date and time.
    github.com/Azure/AzurePublicDataset; Patel et al., Splitwise, ISCA 2024.
BurstGPT, CSV: Timestamp,Model,Request tokens,Response tokens,...; the timestamp is in seconds.
        Later releases have more columns; columns are found by name. github.com/HPMLL/BurstGPT.
Mooncake, JSON lines: timestamp (ms), input_length, output_length and hash_ids, with one id for each
    block of 512 tokens of the prompt. github.com/kvcache-ai/Mooncake; Qin et al., FAST 2025.
Qwen-Bailian, JSON lines: the same names and chat_id; the timestamp is in seconds, and a block has
    16 tokens. github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from allocbench.workloads.csv_dialect import ENCODING, Rows, first_line, header
from allocbench.workloads.serving.requests import PREFIX_TOKENS, Requests
from allocbench.workloads.trace import MAX_SIZE, TraceError

_Columns: TypeAlias = Mapping[str, tuple[str, str]]
_Allowed: TypeAlias = tuple[str, tuple[type, ...], int]
"""What the values of a key are, their types and the largest one."""

MOST_TOKENS = 10**8 - 1
"""Limit of the tokens of a prompt or of an answer."""
_MOST_SHOWN = 40  # characters of a value in a message
_COUNT = (r"[0-9]{1,8}(\.0*)?", "whole number")
_NUMBER = (r"[0-9]{1,15}(\.[0-9]+)?(e[+-]?[0-9]{1,2})?", "number")
_TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?",
    "date and time",
)
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_OFFSET = r"(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2})$"
_MEANINGS = {
    "arrival": "timestamp arrivedat arrivaltime arrivaltimestamp arrivaltimes arrivaltimems time"
    " timems requesttime requesttimestamp created createdat starttime",
    "prompt tokens": "prompttokens numprompttokens prompttoken promptlen promptlength promptsize"
    " inputtokens numinputtokens inputlen inputlength inputtokencount contexttokens requesttokens"
    " numprefilltokens prefilltokens",
    "answer tokens": "completiontokens numcompletiontokens outputtokens numoutputtokens outputlen"
    " outputlength outputtokencount generatedtokens generationtokens responsetokens"
    " numdecodetokens decodetokens tokensize",
}
"""Names of columns by what they mean, in lower case and without other signs than letters."""
_MILLISECONDS = 1e11
"""Times from here on are milliseconds since 1970."""
_BENCHMARK = re.compile(rb'\s*\{.{0,60000}"input_lens": ?\[.{0,60000}"output_lens": ?\[', re.S)
_MOST_BENCHMARK = 1 << 28  # bytes
_AZURE = {"TIMESTAMP": _TIME, "ContextTokens": _COUNT, "GeneratedTokens": _COUNT}
_BURST = {"Timestamp": _NUMBER, "Request tokens": _COUNT, "Response tokens": _COUNT}
"""Columns of a log, with a pattern of their values and what it stands for."""
_JSON = ("timestamp", "input_length", "output_length")
"""Keys of each line of a log in JSON."""


@dataclass(frozen=True)
class _JsonLog:
    """JSON lines: what a timestamp must be, how many make a second, the tokens of a prefix id."""

    timestamp: _Allowed
    per_second: int
    tokens_per_id: int


_TOKENS: _Allowed = "whole number", (int,), MOST_TOKENS
_MOONCAKE = _JsonLog(("whole number of milliseconds", (int,), 10**15), 1000, PREFIX_TOKENS)
_BAILIAN = _JsonLog(("number of seconds", (int, float), 10**12), 1, 16)


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
    line = first_line(head)
    if header(line, _have(_AZURE))[1]:
        return _read_azure
    if header(line, _have(_BURST))[1]:
        return _read_burstgpt
    if not line.startswith(("{", "[")) and header(line, _means_requests)[1]:
        return _read_by_meaning
    if _BENCHMARK.match(head):
        return _read_benchmark
    return _read_json if _is_json(head) else None


def _have(columns: _Columns) -> Callable[[Sequence[str]], bool]:
    """Whether names in lower case contain each of the columns once."""
    return lambda names: all(names.count(name.lower()) == 1 for name in columns)


def _meanings(names: Sequence[str]) -> dict[str, list[str]]:
    """The columns of a CSV that can have each meaning."""
    plain = {name: re.sub("[^a-z]", "", name.lower()) for name in names}
    return {
        meaning: [name for name in names if plain[name] in known.split()]
        for meaning, known in _MEANINGS.items()
    }


def _means_requests(names: Sequence[str]) -> bool:
    return all(_meanings(names).values())


def _is_json(head: bytes) -> bool:
    line, newline, _ = head.removeprefix(codecs.BOM_UTF8).partition(b"\n")
    if not line.startswith(b"{"):
        return False
    if not newline:  # the first line is longer than the head
        return all(f'"{name}"'.encode() in line for name in _JSON)
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and set(_JSON) <= first.keys()


def _read_azure(file: BinaryIO) -> Requests:
    when, prompt, output = _columns(file, _AZURE)
    return _requests(_instants(file, when, _AZURE), _counts(prompt), _counts(output))


def _read_by_meaning(file: BinaryIO) -> Requests:
    """A CSV whose columns are recognized by what they mean; raises TraceError for a choice."""
    head = file.read(1 << 16)
    delimiter, names = header(first_line(head), _means_requests)
    meant = _meanings(names or ())
    for meaning, columns in meant.items():
        if len(columns) > 1:
            raise TraceError(
                f"its columns {' and '.join(columns)} may both be the {meaning}: leave one of them"
            )
    arrival, prompt, output = (columns[0] for columns in meant.values())
    rows = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n").split(b"\n")[1:2]
    first = rows[0].decode("utf-8", "replace").split(delimiter) if rows else []
    place = (names or ()).index(arrival)
    is_date = re.match(r'[\s"]*[0-9]{4}-', first[place]) if place < len(first) else None
    wanted = {arrival: _TIME if is_date else _NUMBER, prompt: _COUNT, output: _COUNT}
    file.seek(0)
    when, prompts, outputs = _columns(file, wanted)
    if is_date:
        seconds, unit = _instants(file, when, wanted), "a date and time"
    else:
        seconds, unit = when.cast(pa.float64()).to_numpy(), "in seconds"
        if arrival.endswith(("ms", "ms)", "millis")) or seconds[0] >= _MILLISECONDS:
            seconds, unit = seconds / 1000, "in milliseconds"
    rule = (
        f"arrival from the column {arrival} ({unit}), prompt tokens from {prompt}, answer tokens"
        f" from {output}"
    )
    return replace(_requests(seconds, _counts(prompts), _counts(outputs)), rule=rule)


def _read_benchmark(file: BinaryIO) -> Requests:
    """The results of vLLM's serving benchmark, which have the tokens of each request."""
    data = file.read(_MOST_BENCHMARK + 1)
    if len(data) > _MOST_BENCHMARK:
        raise TraceError(f"is a benchmark's result of more than {_MOST_BENCHMARK:,} bytes")
    result: Any = json.loads(data)
    prompt, output, starts = (result.get(name) for name in _BENCHMARK_LISTS)
    if not (isinstance(prompt, list) and isinstance(output, list) and len(prompt) == len(output)):
        raise TraceError("its input_lens and output_lens are not two lists of equal length")
    for name, tokens in zip(_BENCHMARK_LISTS[:2], (prompt, output), strict=True):
        if not all(type(count) is int and 0 <= count <= MOST_TOKENS for count in tokens):
            raise TraceError(
                f"{name} has a value that is not a whole number from 0 to {MOST_TOKENS:,}"
            )
    timed = (
        isinstance(starts, list)
        and len(starts) == len(prompt)
        and all(type(start) in (int, float) and 0 <= start < 1e15 for start in starts)
    )
    rule = "arrival from start_times" if timed else "no times of arrival: all arrive at once"
    return replace(
        _requests(
            np.array(starts if timed else [0] * len(prompt), np.float64),
            np.array(prompt, np.int64),
            np.array(output, np.int64),
        ),
        rule=f"{rule}; tokens from input_lens and output_lens",
    )


_BENCHMARK_LISTS = ("input_lens", "output_lens", "start_times")


def _instants(file: BinaryIO, when: pa.StringArray, columns: _Columns) -> NDArray[np.float64]:
    """Seconds since 1970 of dates with a time and maybe a zone."""
    local = pc.replace_substring_regex(when, _ZONE, "")
    try:
        instants = local.cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        _refuse_first(file, columns)
        raise
    seconds: NDArray[np.float64] = instants.cast(pa.int64()).to_numpy() / 1e9
    offset = pc.extract_regex(when, _OFFSET)
    sign, hours, minutes = (pc.fill_null(part, "0") for part in offset.flatten())
    ahead = hours.cast(pa.int64()).to_numpy() * 3600 + minutes.cast(pa.int64()).to_numpy() * 60
    is_behind = pc.equal(sign, "-").to_numpy(zero_copy_only=False)
    seconds -= np.where(is_behind, -ahead, ahead)
    return seconds


def _read_burstgpt(file: BinaryIO) -> Requests:
    when, prompt, output = _columns(file, _BURST)
    return _requests(when.cast(pa.float64()).to_numpy(), _counts(prompt), _counts(output))


def _read_json(file: BinaryIO) -> Requests:
    kind = None
    rows, prefix = [], []
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            values = [_without_fraction(row[name]) for name in _JSON]
            ids = row.get("hash_ids", [])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no '{error.args[0]}'" if isinstance(error, KeyError) else "not a JSON object"
            raise TraceError(f"line {number}: {what}") from error
        kind = kind or (_BAILIAN if "chat_id" in row else _MOONCAKE)
        allowed = (kind.timestamp, _TOKENS, _TOKENS)
        for name, value, (what, types, most) in zip(_JSON, values, allowed, strict=True):
            if type(value) not in types or not 0 <= value <= most:
                shown = str(value)[:_MOST_SHOWN]
                raise TraceError(
                    f"line {number}: {name} '{shown}' is not a {what} from 0 to {most:,}"
                )
        if not isinstance(ids, list) or not all(isinstance(block_id, int) for block_id in ids):
            raise TraceError(f"line {number}: hash_ids is not a list of whole numbers")
        if any(abs(block_id) > MAX_SIZE for block_id in ids):  # many would have the same hash
            raise TraceError(f"line {number}: a number in hash_ids is above {MAX_SIZE:,}")
        rows.append(values)
        prefix.append(ids)
    if kind is None:
        raise TraceError("holds no requests")
    when, prompt, output = (np.array(column) for column in zip(*rows, strict=True))
    return _requests(when / kind.per_second, prompt, output, prefix, kind.tokens_per_id)


def _without_fraction(value: Any) -> Any:
    """A number such as 3.0 as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _columns(file: BinaryIO, columns: _Columns) -> list[pa.StringArray]:
    """Columns of a CSV as text that matches their patterns; raises TraceError for other text."""
    try:
        table = _table(file, columns)
    except pa.ArrowException:
        _refuse_first(file, columns)
        raise
    if not len(table):
        raise TraceError("holds no requests")
    found = [pc.utf8_trim_whitespace(table[name.lower()].combine_chunks()) for name in columns]
    for column, (pattern, _) in zip(found, columns.values(), strict=True):
        if not pc.all(pc.match_substring_regex(column, f"^{pattern}$")).as_py():
            _refuse_first(file, columns)
    return found


def _table(file: BinaryIO, columns: _Columns) -> pa.Table:
    with _rows(file, columns) as rows:
        names, line, delimiter = rows.names, rows.line, rows.delimiter
    file.seek(0)
    wanted = [name.lower() for name in columns]
    return pacsv.read_csv(
        file,
        pacsv.ReadOptions(column_names=names, skip_rows=line),
        pacsv.ParseOptions(delimiter=delimiter),
        pacsv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.string()),
            null_values=[],
        ),
    )


@contextmanager
def _rows(file: BinaryIO, columns: _Columns) -> Iterator[Rows]:
    """The rows of a CSV, read one at a time."""
    file.seek(0)
    text = io.TextIOWrapper(file, ENCODING, "backslashreplace", newline="")
    try:
        yield Rows(text, _have(columns))
    finally:
        text.detach()


def _refuse_first(file: BinaryIO, columns: _Columns) -> None:
    """Raise TraceError for the first row that is wrong, if one is."""
    with _rows(file, columns) as rows:
        names = rows.names or []
        for row in rows.filled(rows.delimiter.join(names)):
            line, count = rows.line, len(rows.row)
            if count < len(names):
                raise TraceError(f"line {line}: {count} fields, not {len(names)}")
            for name, (pattern, what) in columns.items():
                text = row[names.index(name.lower())].strip()
                is_instant = pattern != _TIME[0] or _exists(text)
                if not re.fullmatch(pattern, text, re.ASCII) or not is_instant:
                    raise TraceError(f"line {line}: {name} {text[:_MOST_SHOWN]!r} is not a {what}")


def _exists(instant: str) -> bool:
    """Whether the calendar has this date and time, and 64 bits hold its nanoseconds."""
    try:
        pa.scalar(re.sub(_ZONE, "", instant)).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True


def _counts(column: pa.StringArray) -> NDArray[np.int64]:
    whole = pc.replace_substring_regex(column, r"\..*", "")
    numbers: NDArray[np.int64] = whole.cast(pa.int64()).to_numpy()
    return numbers


def _requests(
    seconds: NDArray[np.float64],
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    prefix: Sequence[Sequence[int]] | None = None,
    tokens_per_id: int = PREFIX_TOKENS,
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
        tokens_per_id=tokens_per_id,
        skipped=len(seconds) - len(order),
    )
