# SPDX-License-Identifier: Apache-2.0
"""Request logs of real services. The format is detected from the first line.

A CSV of another program, JSON lines and a JSON list are read if their columns or keys can be
recognized by what they mean: `_MEANINGS`. Without times, all requests arrive at once.

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

import codecs
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from allocbench.workloads.csv_dialect import ENCODING, Rows, first_line, header
from allocbench.workloads.importers.json_elements import elements
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
_ARRIVAL = "arrival"
_MEANINGS = {
    _ARRIVAL: "timestamp arrivedat arrivaltime arrivaltimestamp arrivaltimes arrivaltimems time"
    " timems requesttime requesttimestamp created createdat starttime",
    "prompt tokens": "prompttokens numprompttokens prompttoken promptlen promptlength promptsize"
    " inputtokens numinputtokens inputlen inputlength inputtokencount contexttokens requesttokens"
    " numprefilltokens prefilltokens",
    "answer tokens": "completiontokens numcompletiontokens outputtokens numoutputtokens outputlen"
    " outputlength outputtokencount generatedtokens generationtokens responsetokens"
    " numdecodetokens decodetokens tokensize",
}
"""Names of columns by what they mean, in lower case and without other signs than letters."""
_SUMS = "nummodelrequests numrequests nrequests requestcount"
"""Names of a column that says how many requests a row stands for."""
_AT_ONCE = "no times of arrival: all arrive at once"
_LONGEST = 4_000_000_000  # seconds; nanoseconds fit into 64 bits
_MILLISECONDS = 1e11
"""Times from here on are milliseconds since 1970."""
_BENCHMARK = re.compile(rb'\s*\{.{0,65000}?"(?:input|output)_lens": ?\[', re.S)
_CONVERSATIONS = re.compile(rb'\s*\[\s*\{.{0,4000}?"conversations"\s*:', re.S)
_BYTES_PER_TOKEN = 4
"""Of a text whose tokens nobody has counted."""
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
    for log in (_AZURE, _BURST):
        if header(line, _have(log))[1]:
            return lambda file: _requests(*_timed(file, log))
    if not line.startswith(("{", "[")) and header(line, _means_requests)[1]:
        return _read_by_meaning
    if _BENCHMARK.match(head):
        return _read_benchmark
    if _CONVERSATIONS.match(head):
        return _read_conversations
    if _is_json(head):
        return _read_json
    return _read_json_by_meaning if _means_requests(_first_keys(head)) else None


def _have(columns: _Columns) -> Callable[[Sequence[str]], bool]:
    """Whether names in lower case contain each of the columns once."""
    return lambda names: all(names.count(name.lower()) == 1 for name in columns)


def _meanings(names: Iterable[str]) -> dict[str, list[str]]:
    """The columns of a CSV, or keys of JSON, that can have each meaning."""
    plain = {name: _letters(name) for name in names}
    return {
        meaning: [name for name, letters in plain.items() if letters in known.split()]
        for meaning, known in _MEANINGS.items()
    }


def _letters(name: str) -> str:
    """The letters of a name; of keys inside of others, "usage.prompt_tokens", those of the last."""
    return re.sub("[^a-z]", "", name.lower().rpartition(".")[2])


def _means_requests(names: Iterable[str]) -> bool:
    meant = _meanings(names)
    return all(columns for meaning, columns in meant.items() if meaning != _ARRIVAL)


def _meant(names: Sequence[str]) -> tuple[str | None, str, str]:
    """The names of the time of arrival, prompt and answer tokens; TraceError asks for a choice."""
    meant = _meanings(names)
    for meaning, columns in meant.items():
        if len(columns) > 1:
            raise TraceError(
                f"its columns {' and '.join(columns)} may both be the {meaning}: leave one of them"
            )
    if several := [name for name in names if _letters(name) in _SUMS.split()]:
        raise TraceError(
            f"its column {several[0]} says that a row stands for several requests; give one row for"
            " each request"
        )
    arrival, (prompt,), (output,) = meant.values()
    return arrival[0] if arrival else None, prompt, output


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


def _read_by_meaning(file: BinaryIO) -> Requests:
    """A CSV whose columns are recognized by what they mean; raises TraceError for a choice."""
    head = file.read(1 << 16)
    delimiter, names = header(first_line(head), _means_requests)
    arrival, prompt, output = _meant(names or ())
    file.seek(0)
    if arrival is None:
        prompts, outputs = map(_counts, _columns(file, {prompt: _COUNT, output: _COUNT}))
        seconds, unit = np.zeros(len(prompts)), ""
    else:
        rows = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n").split(b"\n")[1:2]
        first = rows[0].decode("utf-8", "replace").split(delimiter) if rows else []
        place = (names or ()).index(arrival)
        is_date = re.match(r'[\s"]*[0-9]{4}-', first[place]) if place < len(first) else None
        wanted = {arrival: _TIME if is_date else _NUMBER, prompt: _COUNT, output: _COUNT}
        times, prompts, outputs = _timed(file, wanted)
        seconds, unit = (times, "a date and time") if is_date else _seconds(arrival, times)
    requests = _requests(seconds, prompts, outputs)
    return replace(requests, rule=_rule(arrival, unit, prompt, output))


def _timed(
    file: BinaryIO, columns: _Columns
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The times of arrival, as numbers, and the prompt and answer tokens of a CSV."""
    when, prompt, output = _columns(file, columns)
    is_date = _TIME in columns.values()
    times = _instants(file, when, columns) if is_date else when.cast(pa.float64()).to_numpy()
    return times, _counts(prompt), _counts(output)


def _seconds(name: str, times: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Times in seconds, and their unit in words, from the name and the size of the numbers."""
    if name.endswith(("ms", "ms)", "millis")) or times[0] >= _MILLISECONDS:
        return times / 1000, "in milliseconds"
    return times, "in seconds"


def _rule(arrival: str | None, unit: str, prompt: str, output: str) -> str:
    """How the columns were read."""
    when = _AT_ONCE if arrival is None else f"arrival from the column {arrival} ({unit})"
    return f"{when}, prompt tokens from {prompt}, answer tokens from {output}"


def _first_keys(head: bytes) -> Mapping[str, Any]:
    """The keys and values of the first object of JSON lines or of a JSON list; empty for others."""
    text = head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").lstrip(" \t\r\n[")
    if not text.startswith("{"):
        return {}
    try:
        return _keys(json.JSONDecoder().raw_decode(text)[0])
    except (ValueError, RecursionError):
        return {}


def _keys(row: Any) -> dict[str, Any]:
    """The keys and values of an object; those of objects inside have names such as usage.input."""
    if not isinstance(row, dict):
        raise TraceError("one of its rows is not a JSON object")
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found |= {f"{key}.{name}": one for name, one in value.items()}
        else:
            found[key] = value
    return found


def _read_json_by_meaning(file: BinaryIO) -> Requests:
    """JSON lines, or a list of objects, whose keys are recognized by what they mean.

    Rows without tokens, such as those of failed requests, are skipped.
    """
    is_list = file.read(1 << 16).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
    file.seek(0)
    found = elements(file, "requests") if is_list else (row for _, row in _json_lines(file))
    rows = list(map(_keys, found))
    arrival, prompt, output = _meant(list(rows[0]))
    tokens = [[_tokens(row, name) for name in (prompt, output)] for row in rows]
    counts = np.array(tokens, np.int64)
    seconds, unit = np.zeros(len(rows)), ""
    if arrival is not None:
        times = [_instant(row.get(arrival), arrival) for row in rows]
        is_date = isinstance(rows[0].get(arrival), str)
        seconds, unit = (
            (np.array(times), "a date and time") if is_date else _seconds(arrival, np.array(times))
        )
    requests = _requests(seconds, counts[:, 0], counts[:, 1])
    return replace(requests, rule=_rule(arrival, unit, prompt, output))


def _read_conversations(file: BinaryIO) -> Requests:
    """Conversations of ShareGPT, which have texts: the first question of each and its answer."""
    tokens = []
    for number, row in enumerate(elements(file, "conversations")):
        turns = row.get("conversations") if isinstance(row, dict) else None
        texts = [turn.get("value") for turn in turns or () if isinstance(turn, dict)][:2]
        sizes = [len(text.encode(errors="replace")) for text in texts if isinstance(text, str)]
        if len(sizes) < len(texts):
            raise TraceError(f"conversation {number} has a turn without a text")
        counts = [-(-size // _BYTES_PER_TOKEN) for size in sizes]
        tokens.append(counts if len(counts) == 2 else [0, 0])
    counted = np.array(tokens, np.int64).reshape(-1, 2)
    return replace(
        _requests(np.zeros(len(tokens)), counted[:, 0], counted[:, 1]),
        rule=f"{_AT_ONCE}; the first question and answer of each conversation, whose tokens are"
        f" estimated: one for {_BYTES_PER_TOKEN} bytes of text",
    )


def _json_lines(file: BinaryIO) -> Iterator[tuple[int, Any]]:
    """The numbers of lines, from 1 on, and what is in them."""
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield number, json.loads(line.removeprefix(codecs.BOM_UTF8))
            except (ValueError, RecursionError) as error:
                raise TraceError(f"line {number}: not a JSON object") from error


def _tokens(row: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 if it is missing."""
    count = _without_fraction(row.get(name) or 0)
    if type(count) is not int or not 0 <= count <= MOST_TOKENS:
        raise TraceError(
            f"{name} '{str(count)[:_MOST_SHOWN]}' is not a whole number from 0 to {MOST_TOKENS:,}"
        )
    return count


def _instant(value: Any, name: str) -> float:
    """A time as a number; of a date and time, seconds since 1970."""
    try:
        if isinstance(value, str):
            date = datetime.fromisoformat(value)
            return date.replace(tzinfo=date.tzinfo or UTC).timestamp()
        if type(value) in (int, float) and 0 <= value < 1e18:
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise TraceError(f"{name} '{str(value)[:_MOST_SHOWN]}' is not a number, nor a date and time")


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
    rule = "arrival from start_times" if timed else _AT_ONCE
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


def _read_json(file: BinaryIO) -> Requests:
    kind = None
    rows, prefix = [], []
    for number, row in _json_lines(file):
        try:
            values = [_without_fraction(row[name]) for name in _JSON]
            ids = row.get("hash_ids", [])
        except (KeyError, TypeError, AttributeError) as error:
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
            include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), null_values=[]
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
    if (span := float(np.ptp(seconds))) > _LONGEST:
        raise TraceError(f"its times span {span:,.0f} seconds; at most {_LONGEST:,} are allowed")
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
