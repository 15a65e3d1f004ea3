# SPDX-License-Identifier: Apache-2.0
"""Similar dicts of a pickle, read by native code.

A snapshot contains a dict for each event. Python pickles each dict as a run of opcodes with the
same references to its keys, and with values that are numbers, references, or lists of references.
The first such dict is matched by a regular expression, which tells the opcodes of its keys;
`native/event_scanner.hpp` reads all that follow.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from allocbench.workloads._native import EventRun, EventScanner

# Each opcode determines its length, so backtracking never helps: possessive repetition is exact.
_REFERENCE = rb"h.|j...."
_REFERENCES = rb"(?:(?:j....)++|(?:h.)++)++"
_LONG = b"|".join(rb"\x8a\x%02x%b" % (n, b"." * n) for n in range(1, 10))
_SCALAR = rb"%b|K.|M..|J....|N|\x88|\x89|%b" % (_REFERENCE, _LONG)
_LIST = rb"\]\x94(?:\(%be|(?:%b)a)?" % (_REFERENCES, _REFERENCE)
_TUPLE = rb"(?:%b){1,3}[\x85-\x87]\x94" % _SCALAR
_ITEM = rb"(?P<key>%b)(?:%b)" % (_REFERENCE, b"|".join((_TUPLE, _LIST, _SCALAR)))

_item = re.compile(_ITEM, re.DOTALL)
_dict = re.compile(rb"\}\x94\((?P<items>(?:%b)+)u" % _ITEM.replace(b"?P<key>", b"?:"), re.DOTALL)
_scalar = re.compile(_SCALAR, re.DOTALL)
_reference = re.compile(rb"h(.)|j(.{4})", re.DOTALL)
_BEGIN = b"}\x94("  # of a dict
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_GETS, _LONG1, _BININT, _APPENDS = b"hj", 0x8A, ord("J"), ord("e")
_EVENT, _LIST_KEPT = 0, 1  # values of `EventRun.kept`


class Scanned(ABC):
    """Stands for dicts that follow each other, which the native scanner has read."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def one(self, index: int) -> object:
        """What stands for one of them alone."""


def each(items: Iterable[Any]) -> list[Any]:
    """Values, with one for each dict in place of one for many."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, Scanned):
            found += map(item.one, range(len(item)))
        else:
            found.append(item)
    return found


class Meanings(NamedTuple):
    """How the dicts of an event become numbers; see `EventScanner`.

    action: number of a string, and whether events with it have a label. label: number of frames.
    pool: number of the id of a pool. store: stores the events of a run. A function raises
    an exception for a value that it does not take.
    """

    place: Sequence[int]
    action: Callable[[Any], tuple[int, bool]]
    label: Callable[[Any], int]
    pool: Callable[[Any], int]
    store: Callable[[EventRun], Scanned]


class Packer(NamedTuple):
    """How dicts with certain keys are stored: one at a time, given all values, or many."""

    pack: Callable[[Sequence[Any]], object]
    meanings: Meanings


PackerFor: TypeAlias = Callable[[tuple[Any, ...]], Packer | None]


class _Run(NamedTuple):
    """What a run of events added to the memo."""

    scanner: EventScanner
    scanned: Scanned
    kept: Any
    index: Any


class _Alike(NamedTuple):
    """Dicts with the same keys. begin: the opcodes that each of them begins with."""

    scanner: EventScanner
    meanings: Meanings
    begin: bytes


class Memo:
    """What later opcodes may refer to, by number; most numbers are consecutive.

    dense: the values before the first run of events. Values of runs are made when they are needed.
    """

    __slots__ = ("_begins", "_changed", "_length", "_parts", "changes", "dense", "sparse")

    def __init__(self) -> None:
        self.dense: list[Any] = []
        self.sparse: dict[str, Any] = {}  # by texts: nobody can choose those that collide
        self.changes = 0  # how often a value was replaced
        self._begins: list[int] = [0]
        self._parts: list[list[Any] | _Run] = [self.dense]
        self._length = 0  # of all parts but the last one, if that is a list
        self._changed: dict[str, Any] = {}  # values of runs that were replaced

    def _end(self) -> int:
        last = self._parts[-1]
        return self._length + (len(last) if type(last) is list else 0)

    def __len__(self) -> int:
        return self._end() + len(self.sparse)

    def __getitem__(self, number: int) -> Any:
        if number < len(self.dense):
            return self.dense[number]
        if number >= self._end():
            return self.sparse[str(number)]
        if self._changed and str(number) in self._changed:
            return self._changed[str(number)]
        n = bisect_right(self._begins, number) - 1
        part, place = self._parts[n], number - self._begins[n]
        return self._value(part, place) if isinstance(part, _Run) else part[place]

    def __setitem__(self, number: int, value: Any) -> None:
        end = self._end()
        if number > end:
            self.sparse[str(number)] = value
        elif number == end:
            self.append(value)
        else:
            self.changes += 1
            self._replace(number, value)

    def complete(self, number: int, value: Any) -> None:
        """Put what stands for a dict in place of the dict, which was read in between."""
        if number < self._end():
            self._replace(number, value)
        else:
            self.sparse[str(number)] = value

    def _replace(self, number: int, value: Any) -> None:
        n = bisect_right(self._begins, number) - 1
        part = self._parts[n]
        if type(part) is list:
            part[number - self._begins[n]] = value
        else:
            self._changed[str(number)] = value

    def append(self, value: Any) -> None:
        """Add the next value of those with consecutive numbers."""
        last = self._parts[-1]
        if type(last) is not list:
            last = []
            self._begins.append(self._length)
            self._parts.append(last)
        last.append(value)

    def append_run(self, scanner: EventScanner, scanned: Scanned, run: EventRun) -> None:
        """Add the values of a run of events."""
        self._length = self._end()
        self._begins.append(self._length)
        self._parts.append(_Run(scanner, scanned, run.kept, run.index))
        self._length += len(run.kept)

    def _value(self, run: _Run, place: int) -> Any:
        kept, index = int(run.kept[place]), int(run.index[place])
        if kept == _EVENT:
            return run.scanned.one(index)
        opcodes = run.scanner.text(index)
        return References(self, opcodes) if kept == _LIST_KEPT else values(self, opcodes)


class References:
    """A list of earlier values of the pickle, which are looked up when the list is read."""

    __slots__ = ("_memo", "_references")

    def __init__(self, memo: Memo, references: bytes) -> None:
        self._memo = memo
        self._references = references

    def __iter__(self) -> Iterator[Any]:
        for short, long in _reference.findall(self._references):
            yield self._memo[int.from_bytes(short or long, "little")]


def values(memo: Memo, opcodes: bytes) -> tuple[Any, ...]:
    """The numbers, constants and references of a tuple."""
    return tuple(_scalar_value(memo, part) for part in _scalar.findall(opcodes))


def _scalar_value(memo: Memo, opcodes: bytes) -> Any:
    op = opcodes[0]
    if op in _CONSTANTS:
        return _CONSTANTS[op]
    if op in _GETS:
        return memo[int.from_bytes(opcodes[1:], "little")]
    if op == _LONG1:
        return int.from_bytes(opcodes[2:], "little", signed=True)
    return int.from_bytes(opcodes[1:], "little", signed=op == _BININT)


class RepeatedDicts:
    """Reads dicts whose keys have a packer, if they are pickled as described above."""

    def __init__(self, memo: Memo, packer_for: PackerFor) -> None:
        self._memo = memo
        self._packer_for = packer_for
        self._learned: dict[tuple[bytes, ...], _Alike | None] = {}
        self._last: _Alike | None = None
        self._changes = 0

    def read(self, data: bytes, position: int, left: int) -> tuple[int, Scanned | None]:
        """Read the dicts from a position on: where they end, and what stands for them.

        Returns (0, None) if no such dict begins there. left: how many bytes of the file follow the
        data.
        """
        if self._memo.sparse:
            return 0, None
        if self._changes != self._memo.changes:
            self._changes = self._memo.changes
            for learned in self._learned.values():
                if learned:
                    learned.scanner.forget()
        run = self._scan(data, position, left)
        if not run:
            learned = self._learn(data, position)
            if learned is None or learned is self._last:
                return 0, None
            self._last = learned
            run = self._scan(data, position, left)
            if not run:
                return 0, None
        assert self._last is not None
        scanner, meanings, _ = self._last
        scanned = meanings.store(run)
        self._memo.append_run(scanner, scanned, run)
        return run.end, scanned

    def _learn(self, data: bytes, position: int) -> _Alike | None:
        """The scanner for dicts with the keys of the one at a position, if they have a packer."""
        match = _dict.match(data, position)
        if not match:
            return None
        alike = tuple(item["key"] for item in _item.finditer(match["items"]))
        if alike not in self._learned:
            keys = tuple(_scalar_value(self._memo, key) for key in alike)
            is_named = all(type(key) is str for key in keys)
            packer = self._packer_for(keys) if is_named else None
            self._learned[alike] = packer and _Alike(
                EventScanner(alike, packer.meanings.place), packer.meanings, _BEGIN + alike[0]
            )
        return self._learned[alike]

    def _scan(self, data: bytes, position: int, left: int) -> EventRun | None:
        if self._last is None or not data.startswith(self._last.begin, position):
            return None
        memo = self._memo
        scanner, meanings, _ = self._last
        return scanner.scan(
            data,
            position,
            left,
            lambda place: meanings.action(memo[place]),
            lambda opcodes: meanings.label(References(memo, opcodes)),
            lambda place: meanings.label(memo[place]),
            lambda opcodes: meanings.pool(values(memo, opcodes)),
            lambda place: meanings.pool(memo[place]),
        )
