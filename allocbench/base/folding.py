# SPDX-License-Identifier: Apache-2.0
"""Text in narrow cells of a terminal: names are cut after , : = and /, except before short values.

The parts of "caching:conf=expandable_segments:True" are "caching:conf=" and the rest.
"""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_PARTS = re.compile(r"[^,:=/]*[,:=/]+|[^,:=/]+")
_SHORT = 8  # letters of a value, and a separator after it


def folded(text: str, width: int) -> str:
    """The text in lines of at most a width, cut at spaces, else inside of words after , : = and /.

    A part that is longer than the width stays whole.
    """
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def least_width(text: str) -> int:
    """The least width at which no part is longer."""
    return max((len(part) for word in text.split() for part in _parts(word)), default=0)


class FoldedText:
    """A cell of a rich table whose text is folded to the width of its column."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text.plain

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(map(len, self._text.plain.split("\n")))
        return Measurement(least_width(self._text.plain), longest).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts, begin = list[Text](), 0
        for line in folded(self._text.plain, options.max_width).split("\n"):
            parts.append(self._text[begin : begin + len(line)])
            begin += len(line)
            begin += self._text.plain[begin : begin + 1].isspace()
        yield Text("\n", overflow="fold").join(parts)


def _parts(word: str) -> list[str]:
    """The parts of a word, which are never cut."""
    parts = [""]
    for part in _PARTS.findall(word):
        if parts[-1].endswith((":", "=")) and len(part) <= _SHORT:
            parts[-1] += part
        else:
            parts.append(part)
    return [part for part in parts if part]


def _wrapped(line: str, width: int) -> str:
    lines = [""]
    for word in line.split(" "):
        parts = _parts(word) if len(word) > width else [word]
        for n, part in enumerate(parts):
            space = " " if n == 0 and lines[-1] else ""
            if lines[-1] and len(lines[-1]) + len(space) + len(part) > width:
                lines.append(part)
            else:
                lines[-1] += space + part
    return "\n".join(lines)
