# SPDX-License-Identifier: Apache-2.0
"""Text on a narrow terminal: names are cut after , : = and /, except before short values.

The parts of "caching:conf=expandable_segments:True" are "caching:conf=" and the rest. A number and
its unit stay together.
"""

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_PARTS = re.compile(r"[^,:=/]*[,:=/]+|[^,:=/]+")
_SPACE = re.compile(r"(?<!\d) | (?!(?:[KMGTP]i)?B\b|[num]?s\b|%)")
_SHORT = 8  # letters of a value, and a separator after it


def folded(text: str, width: int) -> str:
    """The text in lines of at most a width, cut at spaces, else inside of words after , : = and /.

    A part that is longer than the width stays whole. An indented line is continued with its indent.
    """
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def least_width(text: str) -> int:
    """The least width at which no part is longer."""
    return max((len(part) for word in _SPACE.split(text) for part in _parts(word)), default=0)


class FoldedText:
    """Text of one style that is folded to the width of a console or of its column in a table."""

    def __init__(self, text: Text | str) -> None:
        self._text = Text(text) if isinstance(text, str) else text

    def __str__(self) -> str:
        return self._text.plain

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(map(len, self._text.plain.split("\n")))
        return Measurement(least_width(self._text.plain), longest).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = folded(self._text.plain, options.max_width)
        yield Text(shown, self._text.style, overflow="fold")


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
    words = line.lstrip(" ")
    indent = line.removesuffix(words)
    lines = [""]
    for word in _SPACE.split(words) if len(line) > width else [words]:
        parts = _parts(word) if len(indent + word) > width else [word]
        for n, part in enumerate(parts):
            space = " " if n == 0 and lines[-1] else ""
            if lines[-1] and len(indent + lines[-1] + space + part) > width:
                lines.append(part)
            else:
                lines[-1] += space + part
    return "\n".join(indent + line for line in lines)
