# SPDX-License-Identifier: Apache-2.0
"""Memory profiles of JAX: what was live at one moment, by call stack (the protobuf of pprof).

`jax.profiler.save_device_memory_profile(path)` writes a Profile message, compressed with gzip. Its
strings, functions and locations are tables; a sample has the locations of its stack, innermost
first, a number of buffers and their bytes, and labels: the kind and the device.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from allocbench.base.error_text import HeldBuffer, MemoryDump, exact
from allocbench.workloads.importers.labels import Frame, line_of
from allocbench.workloads.vocabulary import MAX_SIZE, TraceError

_MOST = 1 << 26  # bytes
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
"""Fields of the message Profile."""
_Fields = dict[int, list[int | bytes]]


def read(file: BinaryIO, path: Path) -> MemoryDump:
    """Read what was live, by function and line of the user's program; raises TraceError."""
    data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise TraceError(f"is a memory profile of more than {_MOST:,} bytes")
    try:
        return _read(data)
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise TraceError("is a memory profile of JAX, but damaged") from error


def _read(data: bytes) -> MemoryDump:
    profile = _message(data)
    strings = [_text(entry) for entry in profile.get(_STRING, [])]
    functions = {}
    for entry in profile.get(_FUNCTION, []):
        function = _message(entry)
        functions[_number(function, 1)] = tuple(strings[_number(function, n)] for n in (2, 4))
    places = {}
    for entry in profile.get(_LOCATION, []):
        location = _message(entry)
        lines = [_message(line) for line in location.get(4, [])]
        places[_number(location, 1)] = [
            Frame(file, _number(line, 2), name)
            for line in lines
            for name, file in [functions[_number(line, 1)]]
        ]
    units = [strings[_number(_message(entry), 2)] for entry in profile.get(_SAMPLE_TYPE, [])]
    if "bytes" not in units:
        raise TraceError("is a profile of pprof without bytes")
    column = units.index("bytes")
    held, kinds = defaultdict[tuple[str, str], int](int), defaultdict[str, int](int)
    for entry in profile.get(_SAMPLE, []):
        sample = _message(entry)
        size = _packed(sample.get(2, []))[column]
        size -= size >> 63 << 64  # it is signed
        if not 0 <= size <= MAX_SIZE:
            raise TraceError(f"is a memory profile with a sample of {size:,} bytes")
        labels = {}
        for label in map(_message, sample.get(3, [])):
            labels[strings[_number(label, 1)]] = strings[_number(label, 2)]
        kinds[" on ".join(filter(None, map(labels.get, ("kind", "device"))))] += size
        stack = [frame for n in _packed(sample.get(1, [])) for frame in places[n]]
        held[stack[0].name if stack else "", line_of(stack)] += size
    rows = [HeldBuffer(exact(size), *where) for where, size in held.items() if size]
    return MemoryDump(
        "a memory profile of JAX",
        "when it was written",
        [HeldBuffer(exact(size), name) for name, size in kinds.items() if size],
        sorted(rows, key=lambda row: row.size.low, reverse=True),
    )


def _message(data: int | bytes) -> _Fields:
    """The fields of a message: numbers, and bytes of strings and of messages inside."""
    if isinstance(data, int):
        raise TypeError
    fields: _Fields = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(data, at)
            fields[key >> 3].append(number)
        elif kind == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise IndexError
            fields[key >> 3].append(data[at : at + length])
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise KeyError(kind)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise OverflowError


def _packed(values: list[int | bytes]) -> list[int]:
    """The numbers of a repeated field, packed or not."""
    return [number for value in values for number in _numbers(value)]


def _numbers(value: int | bytes) -> Iterator[int]:
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def _number(fields: _Fields, field: int) -> int:
    """A field that holds one number; 0 if it is left out, as in every protobuf."""
    value = fields.get(field, [0])[-1]
    if isinstance(value, bytes):
        raise TypeError
    return value


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise TypeError
    return value.decode("utf-8", "replace")
