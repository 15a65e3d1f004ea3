# SPDX-License-Identifier: Apache-2.0
"""The elements of a long JSON array, one at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NoReturn

from allocbench.workloads.trace import TraceError

_PART = 1 << 20  # bytes
_MOST = 1 << 26  # characters of one element
_SPACE = " \t\n\r"
_LONGEST_ESCAPE = 6  # letters
_ESCAPE = re.compile(r'\\(?:(["\\/]|u[0-9a-fA-F]{4})|((?:u[0-9a-fA-F]{0,3})?\Z))?')
"""A backslash, what it escapes, or what may be the beginning of that at the end of a text.

A program that writes some backslashes as they are does so in `C:\\train.py`, too: `\\t` is no tab.
"""


class TruncatedError(TraceError):
    """The file ends before its JSON does."""


def elements(
    file: BinaryIO, key: str, other: Callable[[str, Any], None] = lambda name, value: None
) -> Iterator[Any]:
    """The elements of the array `key` of an open JSON object, or of the file's own array.

    other: called with the name and the value of every other member of the object. Also reads what
    programs write by mistake: backslashes that escape nothing, as in the paths of Windows, stand
    for themselves; an array may end with a comma; bytes that are not UTF-8 are replaced. Raises
    TraceError for a file that is not JSON or has no such array, and TruncatedError, after the
    whole elements, for one that ends in the middle.
    """
    text = _Text(file)
    first = text.take("[{")
    if first == "[":
        yield from text.array()
    else:
        yield from _member(text, key, other)
    if text.peek():
        text.refuse()


def _member(text: _Text, key: str, other: Callable[[str, Any], None]) -> Iterator[Any]:
    """The elements of one member of an object whose brace is taken."""
    present = False
    while text.peek() != "}":
        name = text.value()
        text.take(":")
        if name == key and text.peek() == "[":
            present = True
            text.take("[")
            yield from text.array()
        else:
            other(name, text.value())
        if text.peek() != "}":
            text.take(",")
    text.take("}")
    if not present:
        raise TraceError(f"is JSON, but has no array '{key}'")


class _Text:
    """JSON text, read in parts."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._json = json.JSONDecoder(strict=False)
        self._text = ""
        self._at = 0
        self._before = 0  # characters before the text
        self._ended = False
        self._repairs = False
        self._rest = ""  # of a text that is repaired: an escape that the next part continues

    def peek(self) -> str:
        """The next character that is not white space, or "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, any_of: str) -> str:
        """The next character, which is one of these."""
        next_character = self.peek()
        if not next_character or next_character not in any_of:
            self.refuse()
        self._at += 1
        return next_character

    def value(self) -> Any:
        """The next value."""
        self.peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:  # or the value continues after this part
                if not self._repairs and error.msg.startswith("Invalid \\"):
                    self._repairs = True
                    self._before += self._at
                    self._text, self._at = self._repaired(self._text[self._at :]), 0
                elif not self._more():
                    where = self._before + self._at
                    complaint = f"is truncated or not JSON: the value at character {where}"
                    at_end = error.pos >= len(self._text.rstrip()) - _LONGEST_ESCAPE
                    is_cut = at_end or error.msg.startswith("Unterminated")
                    raise (TruncatedError if is_cut else TraceError)(complaint) from error
            except RecursionError as error:
                raise TraceError("is JSON nested too deeply") from error
            else:
                if end < len(self._text) or not self._more():  # a number may continue
                    self._at = end
                    return value

    def array(self) -> Iterator[Any]:
        """The elements of an array whose bracket is taken."""
        while self.peek() != "]":
            yield self.value()
            if self.peek() != "]":
                self.take(",")
        self.take("]")

    def refuse(self) -> NoReturn:
        """Raise TraceError for the place that was reached."""
        if not self.peek():
            raise TruncatedError("is truncated: its JSON does not end")
        raise TraceError(f"is not JSON at character {self._before + self._at}")

    def _more(self) -> bool:
        """Read more, at least as much as is held: a long value takes linear time."""
        if self._ended:
            return False
        if len(self._text) - self._at > _MOST:
            raise TraceError(f"holds a JSON value of over {_MOST} characters")
        part = self._file.read(max(_PART, len(self._text) - self._at))
        self._ended = not part
        self._before += self._at
        decoded = self._decoder.decode(part, final=self._ended)
        if self._repairs:
            decoded = self._repaired(decoded)
        self._text = self._text[self._at :] + decoded
        self._at = 0
        return True

    def _repaired(self, part: str) -> str:
        """A part, which begins outside of an escape, with each other backslash doubled."""
        text, self._rest = self._rest + part, ""

        def escape(match: re.Match[str]) -> str:
            if match[2] is not None and not self._ended:
                self._rest = match[0]
                return ""
            return match[0] if match[1] else "\\" + match[0]

        return _ESCAPE.sub(escape, text)
