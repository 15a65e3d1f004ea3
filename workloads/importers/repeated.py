# SPDX-License-Identifier: Apache-2.0
"""Similar dicts of a pickle, read by one regular expression for all of them.

A snapshot contains a dict for each event. Python pickles each dict as a run of opcodes with the
same references to its keys, and with values that are numbers, references, or lists of references.
Matching a whole run takes a third of the time of reading its opcodes one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Packer = tuple[Callable[[Sequence[Any]], object], Collection[int]]
"""A function of all values of a dict, in order, and the places of those that it looks at."""

PackerFor = Callable[[tuple[Any, ...]], Packer | None]

# Each opcode determines its length, so backtracking never helps: possessive repetition is exact.
_REFERENCE = rb"h.|j...."
_REFERENCES = rb"(?:(?:j....)++|(?:h.)++)++"
_LONG = b"|".join(rb"\x8a\x%02x%b" % (n, b"." * n) for n in range(1, 10))
_SCALAR = rb"%b|K.|M..|J....|N|\x88|\x89|%b" % (_REFERENCE, _LONG)
_LIST = rb"\]\x94(?:\(%be|(?:%b)a)?" % (_REFERENCES, _REFERENCE)
_TUPLE = rb"(?:%b){1,3}[\x85-\x87]\x94" % _SCALAR
_VALUES = {"tuple": _TUPLE, "list": _LIST, "scalar": _SCALAR}
_ITEM = rb"(?P<key>%b)(?:%b)" % (
    _REFERENCE,
    b"|".join(rb"(?P<%b>%b)" % (kind.encode(), value) for kind, value in _VALUES.items()),
)
_BEGIN, _END = rb"\}\x94\(", b"u"

_item = re.compile(_ITEM, re.DOTALL)
_alike = re.compile(rb"%b(?P<items>(?:%b)+)%b" % (_BEGIN, _ITEM, _END), re.DOTALL)
_scalar = re.compile(_SCALAR, re.DOTALL)
_reference = re.compile(rb"h(.)|j(.{4})", re.DOTALL)
_MISSING = object()
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_LONG1, _EMPTY_LIST, _BININT = 0x8A, ord("]"), ord("J")
_LENGTHS = {
    op: length
    for ops, length in ((b"N\x88\x89", 1), (b"hK", 2), (b"M", 3), (b"Jj", 5))
    for op in ops
}


class Memo:
    """What later opcodes may refer to, by number; most numbers are consecutive."""

    __slots__ = ("dense", "sparse")

    def __init__(self) -> None:
        self.dense: list[Any] = []
        self.sparse: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.dense) + len(self.sparse)

    def __getitem__(self, number: int) -> Any:
        return self.dense[number] if number < len(self.dense) else self.sparse[number]

    def __setitem__(self, number: int, value: Any) -> None:
        if number == len(self.dense):
            self.dense.append(value)
        elif number < len(self.dense):
            self.dense[number] = value
        else:
            self.sparse[number] = value


class References:
    """A list of earlier values of the pickle, which are looked up when the list is read."""

    __slots__ = ("_memo", "_references")

    def __init__(self, memo: Memo, references: bytes) -> None:
        self._memo = memo
        self._references = references

    def __iter__(self) -> Iterator[Any]:
        for short, long in _reference.findall(self._references):
            yield self._memo[int.from_bytes(short or long, "little")]


@dataclass(frozen=True)
class _Alike:
    """Dicts that differ only in their values.

    match: their expression, with a group for the opcodes of each value, empty for a value that is
    not needed. pack: packs the values. memoized: the indices of the values that enter the memo.
    """

    match: Callable[[bytes, int], re.Match[bytes] | None]
    pack: Callable[[Sequence[Any]], object]
    memoized: list[int]


def _alike_dicts(
    items: list[re.Match[bytes]], pack: Callable[[Sequence[Any]], object], wanted: Collection[int]
) -> _Alike:
    kinds = [item.lastgroup or "" for item in items]
    memoized = [n for n, kind in enumerate(kinds) if kind != "scalar"]
    pattern = b"".join(
        re.escape(item["key"])
        + (rb"(%b)" if n in wanted or n in memoized else rb"(?:%b)()") % _VALUES[kind]
        for n, (item, kind) in enumerate(zip(items, kinds, strict=True))
    )
    match = re.compile(_BEGIN + pattern + _END, re.DOTALL).match
    return _Alike(match, pack, memoized)


class RepeatedDicts:
    """Reads dicts whose keys have a packer, if they are pickled as described above."""

    def __init__(self, memo: Memo, packer_for: PackerFor) -> None:
        self._memo = memo
        self._packer_for = packer_for
        self._known: dict[bytes, Any] = {b"": None}
        self._learned: dict[tuple[bytes, ...], _Alike] = {}
        self._last: _Alike | None = None

    def read(self, data: bytes, position: int) -> tuple[int, Any]:
        """The end and the packed form of the dict at a position; 0 and None if it has another form.

        Raises IndexError or KeyError for references to missing values.
        """
        match = self._last.match(data, position) if self._last else None
        if match is None:
            self._last = self._learn(data, position)
            if self._last is None or (match := self._last.match(data, position)) is None:
                return 0, None
        assert self._last is not None
        known, number, values = self._known, int.from_bytes, []
        for raw in match.groups():
            value = known.get(raw, _MISSING)
            if value is _MISSING:
                op = raw[0]
                if op == _LONG1 and len(raw) == raw[1] + 2:
                    value = number(raw[2:], "little", signed=True)
                elif op == _BININT and len(raw) == 5:
                    value = number(raw[1:], "little", signed=True)
                else:
                    value = self._value(raw)
            values.append(value)
        packed = self._last.pack(values)
        dense = self._memo.dense
        dense.append(packed)
        for index in self._last.memoized:
            dense.append(values[index])
        return match.end(), packed

    def _learn(self, data: bytes, position: int) -> _Alike | None:
        """The expression for dicts like the one at a position, if it has a packer."""
        match = _alike.match(data, position)
        if not match or self._memo.sparse:
            return None
        items = list(_item.finditer(match["items"]))
        alike = tuple(item["key"] for item in items)
        if alike not in self._learned:
            keys = tuple(self._value(key) for key in alike)
            is_named = all(type(key) is str for key in keys)
            if not is_named or (packer := self._packer_for(keys)) is None:
                return None
            self._learned[alike] = _alike_dicts(items, *packer)
        return self._learned[alike]

    def _value(self, raw: bytes) -> Any:
        """The value that opcodes stand for; values that are likely to occur again are kept."""
        op = raw[0]
        length = raw[1] + 2 if op == _LONG1 else _LENGTHS.get(op)
        if length and length < len(raw):
            return tuple(self._value(part[0]) for part in _scalar.finditer(raw[:-2]))
        if op == _LONG1:
            return int.from_bytes(raw[2:], "little", signed=True)
        if op == _BININT:
            return int.from_bytes(raw[1:], "little", signed=True)
        value: Any
        if op in b"KM":  # BININT1, BININT2
            value = int.from_bytes(raw[1:], "little")
        elif op == _EMPTY_LIST:
            value = References(self._memo, raw[2:])
        elif op in _CONSTANTS:
            value = _CONSTANTS[op]
        else:
            value = self._memo[int.from_bytes(raw[1:], "little")]
        self._known[raw] = value
        return value
