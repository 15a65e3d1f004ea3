# SPDX-License-Identifier: Apache-2.0
"""A reader of pickles that contain only data: it cannot create objects or call anything.

It knows dicts, lists, tuples, sets, strings, bytes, numbers, booleans and None in the opcodes of
protocols 0 to 5 (`pickletools` documents them). Every opcode that could name, create or call
something else is refused. It reads a window of the file at a time, checks every length against the
file, and lets its user store dicts in a more compact form.
"""

from __future__ import annotations

import codecs
import os
import pickletools
import struct
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from allocbench.workloads.importers.repeated import Memo, PackerFor, RepeatedDicts, Scanned, each
from allocbench.workloads.trace import TraceError

_WINDOW = 1 << 22  # bytes read at a time
_MARGIN = 1 << 16  # enough for one opcode and a list of references
_MOST_DIGITS = 64  # bytes of a whole number, or of a line that holds one
_MOST_TEXT = 1 << 24  # bytes of a string
_NO_SLOT, _ANY_SLOT = -1, -2
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}


class DataPickle:
    """One pickle in a file, read once by `load`.

    packer_for: returns the packer for dicts with certain keys; its result replaces the dict. None:
    the dict is kept.
    """

    def __init__(self, file: BinaryIO, packer_for: PackerFor = lambda keys: None) -> None:
        self._file = file
        self._packer_for = packer_for
        self._size = os.fstat(file.fileno()).st_size
        self._before = file.tell()  # where in the file the window begins
        self._data = b""
        self._at = 0  # in the window
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._slots: list[int] = []  # for each mark: the position in the memo of the dict below it
        self._memo = Memo()
        self._rare = _rare(self)

    def load(self) -> Any:
        """The data; raises TraceError for a truncated, broken or unsafe pickle."""
        try:
            return self._load()
        except (IndexError, KeyError, UnicodeDecodeError, struct.error) as error:
            if self._before + self._at >= self._size:
                raise TraceError(_cut(self._size)) from error
            raise TraceError(f"is a broken pickle, near byte {self._before + self._at}") from error

    def _load(self) -> Any:
        """Handles the common opcodes inline, the others in `_rare`."""
        stack, marks, slots = self._stack, self._marks, self._slots
        memo, dense, rare, number = self._memo, self._memo.dense, self._rare, int.from_bytes
        repeated = RepeatedDicts(memo, self._packer_for).read
        data, position, limit = self._data, self._at, 0
        while True:
            self._at = position
            if position >= limit:
                data, position, limit = self._refill()
            op = data[position]
            position += 1
            if op == 0x7D:  # EMPTY_DICT, with the MEMOIZE or PUT and the MARK that may follow
                left = self._size - self._before - len(data)
                end, dicts = repeated(data, position - 1, left)
                if end:
                    stack.append(dicts)
                    position = end
                    continue
                value: Any = {}
                stack.append(value)
                slot, end = _slot(data, position, len(memo))
                if slot != _NO_SLOT:
                    memo[slot] = value
                position = end
                if data[position] == 0x28:
                    marks.append(len(stack))
                    slots.append(slot)
                    position += 1
            elif op == 0x75:  # SETITEMS
                mark, slot = marks.pop(), slots.pop()
                items = stack[mark:]
                del stack[mark:]
                packed = self._packed(items) if slot != _ANY_SLOT else None
                if packed is None:
                    self._set(items)
                else:
                    stack[-1] = packed
                    if slot != _NO_SLOT:
                        memo.complete(slot, packed)
            elif op == 0x68:  # BINGET
                index = data[position]
                stack.append(dense[index] if index < len(dense) else memo[index])
                position += 1
            elif op == 0x6A:  # LONG_BINGET
                stack.append(memo[number(data[position : position + 4], "little")])
                position += 4
            elif op == 0x8A:  # LONG1
                end = position + 1 + data[position]
                if end > position + 1 + _MOST_DIGITS:
                    raise TraceError(f"holds a number of {end - position - 1} bytes")
                stack.append(number(data[position + 1 : end], "little", signed=True))
                position = end
            elif op == 0x4A:  # BININT
                stack.append(number(data[position : position + 4], "little", signed=True))
                position += 4
            elif op == 0x4B:  # BININT1
                stack.append(data[position])
                position += 1
            elif op == 0x4D:  # BININT2
                stack.append(data[position] | data[position + 1] << 8)
                position += 2
            elif op == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif op == 0x71:  # BINPUT
                memo[data[position]] = stack[-1]
                position += 1
            elif op == 0x5D:  # EMPTY_LIST
                stack.append([])
            elif op == 0x28:  # MARK
                marks.append(len(stack))
                slots.append(_ANY_SLOT)
            elif op == 0x2E:  # STOP
                return stack[-1]
            else:
                self._at = position
                act = rare.get(op)
                if act is None:
                    self._refuse(op)
                act()
                data, position, limit = self._data, self._at, self._limit()

    def _packed(self, items: list[Any]) -> object | None:
        keys = tuple(items[::2])
        if len(items) % 2 or not all(type(key) is str for key in keys):
            return None
        packer = self._packer_for(keys)
        return packer.pack(items[1::2]) if packer else None

    # --- the window

    def _limit(self) -> int:
        """How far opcodes can be read before the window must move."""
        whole = self._before + len(self._data) >= self._size
        return len(self._data) if whole else len(self._data) - _MARGIN

    def _refill(self) -> tuple[bytes, int, int]:
        self._data = self._data[self._at :] + self._file.read(_WINDOW)
        self._before += self._at
        self._at = 0
        if not self._data:
            raise TraceError(_cut(self._size))
        return self._data, 0, max(self._limit(), 1)

    def _take(self, count: int, most: int = _MOST_TEXT) -> bytes:
        """The next `count` bytes, which must be in the file."""
        left = self._size - self._before - self._at
        if count > left:
            raise TraceError(
                f"is truncated or not a pickle: {count} more bytes were expected, and"
                f" {left} are left"
            )
        if count > most:
            raise TraceError(f"is not the data of a trace: a value of {count} bytes")
        while len(self._data) - self._at < count:
            self._refill()
        self._at += count
        return self._data[self._at - count : self._at]

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _line(self) -> bytes:
        while (end := self._data.find(b"\n", self._at)) < 0:
            if len(self._data) - self._at > _MOST_TEXT:
                raise TraceError(f"is not the data of a trace: a line of over {_MOST_TEXT} bytes")
            have = len(self._data) - self._at
            self._refill()
            if len(self._data) == have:
                raise TraceError(_cut(self._size))
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    # --- what opcodes do

    def _refuse(self, op: int) -> NoReturn:
        if op not in _NAMES:
            where = self._before + self._at - 1
            raise TraceError(f"is a broken pickle: no opcode {op:#04x}, at byte {where}")
        name, what = _NAMES[op], ""
        if name in ("GLOBAL", "INST"):
            what = b".".join((self._line()[:80], self._line()[:80])).decode("utf-8", "replace")
        elif name == "STACK_GLOBAL":
            what = ".".join(str(part)[:80] for part in self._stack[-2:])
        raise TraceError(
            f"is a pickle that holds a callable or an object{f', {what}' if what else ''} "
            f"({name}): only plain data is read, and none of it was run"
        )

    def _set(self, items: list[Any]) -> None:
        """Set alternating keys and values of the top dict; drop keys that are not strings."""
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise IndexError
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is str:
                target[key] = value

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise IndexError
        target.extend(items)

    def _pop_mark(self) -> list[Any]:
        """The values above the last mark, some of which may stand for many dicts."""
        mark = self._marks.pop()
        self._slots.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def _apart(self, count: int) -> None:
        """Let each of the uppermost values of the stack, `count` of them, stand for one value."""
        top = self._stack[-count:]
        if any(isinstance(value, Scanned) for value in top):
            self._stack[-count:] = each(top)

    def _push_dict(self, items: list[Any]) -> None:
        self._stack.append({})
        self._set(items)

    def _push_tuple(self, count: int) -> None:
        self._apart(count)
        if count > len(self._stack):
            raise IndexError
        items = tuple(self._stack[len(self._stack) - count :])
        del self._stack[len(self._stack) - count :]
        self._stack.append(items)

    def _last(self) -> Any:
        self._apart(1)
        return self._stack[-1]

    def _popped(self, place: int = 1) -> Any:
        self._apart(place)
        return self._stack.pop(-place)

    def _pop(self) -> None:
        self._apart(1)
        if self._marks and self._marks[-1] == len(self._stack):
            self._pop_mark()
        else:
            self._stack.pop()


def _rare(machine: DataPickle) -> dict[int, Callable[[], object]]:
    """The opcodes that are not handled inline."""
    m, push = machine, machine._stack.append

    def u8() -> int:
        return m._number(1)

    def u32() -> int:
        return m._number(4)

    def u64() -> int:
        return m._number(8)

    def text(count: int) -> None:
        push(m._take(count).decode("utf-8", "surrogatepass"))

    def old_text(count: int) -> None:
        push(m._take(count).decode("latin-1"))

    def line_number(line: bytes) -> None:
        if len(line) > _MOST_DIGITS:
            raise TraceError(f"holds a number of {len(line)} digits")
        if line in (b"00", b"01"):
            push(line == b"01")
            return
        try:
            push(int(line.removesuffix(b"L")))
        except ValueError as error:
            raise IndexError from error

    def line_float(line: bytes) -> None:
        try:
            push(float(line[:_MOST_DIGITS]))
        except ValueError as error:
            raise IndexError from error

    def line_text(line: bytes) -> None:
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[:1] != line[-1:]:
            raise IndexError
        push(codecs.escape_decode(line[1:-1])[0].decode("latin-1"))

    def put(number: int) -> None:
        m._memo[number] = m._last()

    def index(line: bytes) -> int:
        if not line.isdigit() or len(line) > 10:
            raise IndexError
        return int(line)

    def frame() -> None:
        length, left = u64(), m._size - m._before - m._at
        if length > left:
            raise TraceError(
                f"is truncated or not a pickle: a frame of {length} bytes was expected,"
                f" and {left} are left"
            )

    def protocol() -> None:
        if (version := u8()) > 5:
            raise TraceError(f"is a pickle of protocol {version}; protocols 0 to 5 are supported")

    acts: dict[bytes, Callable[[], object]] = {
        b"\x80": protocol,
        b"\x95": frame,
        b"N": lambda: push(None),
        b"\x88": lambda: push(True),
        b"\x89": lambda: push(False),
        b"I": lambda: line_number(m._line()),
        b"L": lambda: line_number(m._line()),
        b"\x8b": lambda: push(int.from_bytes(m._take(u32(), _MOST_DIGITS), "little", signed=True)),
        b"F": lambda: line_float(m._line()),
        b"G": lambda: push(struct.unpack(">d", m._take(8))[0]),
        b"S": lambda: line_text(m._line()),
        b"T": lambda: old_text(u32()),
        b"U": lambda: old_text(u8()),
        b"V": lambda: push(m._line().decode("raw-unicode-escape")),
        b"X": lambda: text(u32()),
        b"\x8c": lambda: text(u8()),
        b"\x8d": lambda: text(u64()),
        b"B": lambda: push(m._take(u32())),
        b"C": lambda: push(m._take(u8())),
        b"\x8e": lambda: push(m._take(u64())),
        b"\x96": lambda: push(m._take(u64())),
        b"a": lambda: m._extend([m._popped()]),
        b"e": lambda: m._extend(m._pop_mark()),
        b"l": lambda: push(each(m._pop_mark())),
        b"d": lambda: m._push_dict(each(m._pop_mark())),
        b"s": lambda: m._set([m._popped(2), m._popped()]),
        b")": lambda: push(()),
        b"t": lambda: push(tuple(each(m._pop_mark()))),
        b"\x85": lambda: m._push_tuple(1),
        b"\x86": lambda: m._push_tuple(2),
        b"\x87": lambda: m._push_tuple(3),
        b"\x8f": lambda: push([]),  # a set, of which only the members matter
        b"\x90": lambda: m._extend(m._pop_mark()),
        b"\x91": lambda: push(each(m._pop_mark())),
        b"0": m._pop,
        b"1": m._pop_mark,
        b"2": lambda: push(m._last()),
        b"p": lambda: put(index(m._line())),
        b"r": lambda: put(u32()),
        b"g": lambda: push(m._memo[index(m._line())]),
    }
    return {op[0]: act for op, act in acts.items()}


def _slot(data: bytes, position: int, next_slot: int) -> tuple[int, int]:
    """The number that a MEMOIZE or PUT assigns, and its end; or None, and the position."""
    op = data[position]
    if op == 0x94:
        return next_slot, position + 1
    if op == 0x71:
        return data[position + 1], position + 2
    if op == 0x72:
        return int.from_bytes(data[position + 1 : position + 5], "little"), position + 5
    return _NO_SLOT, position


def _cut(size: int) -> str:
    return f"is truncated: the pickle does not end within its {size} bytes"
