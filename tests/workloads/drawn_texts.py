# SPDX-License-Identifier: Apache-2.0
"""Texts with other numbers, with parts that are missing or occur twice, and cut ones."""

import re
from random import Random

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*_)")
_UNIT = re.compile(r"(?<=\d)( ?)(?:[KMGT]i?B|bytes|[KMG])\b")
_UNITS = ("B", "KiB", "MiB", "GiB", "GB", "MB", "bytes", "TiB", "G", "M")


def varied(text: str, rng: Random, other: str = "") -> str:
    """A text that is changed in some ways, perhaps with another one before or after it."""
    if other and rng.random() < 0.15:
        text = "\n".join(rng.sample([text, other], 2))
    for change in rng.sample(_CHANGES, rng.choice([0, 1, 1, 2])):
        text = change(text, rng)
    return text


def _numbers(text: str, rng: Random) -> str:
    """Other numbers of about the same form."""

    def other(match: re.Match[str]) -> str:
        if rng.random() < 0.6:
            return match[0]
        whole, point, rest = match[0].partition(".")
        digits = str(rng.choice([0, 1, rng.randrange(10), rng.randrange(10 ** len(whole)), 10**19]))
        return digits + point + "".join(rng.choice("0123456789") for _ in rest)

    return _NUMBER.sub(other, text)


def _units(text: str, rng: Random) -> str:
    return _UNIT.sub(
        lambda match: match[0] if rng.random() < 0.7 else match[1] + rng.choice(_UNITS), text
    )


def _without(text: str, rng: Random) -> str:
    """A clause, a line or some words are missing."""
    parts = re.split(rng.choice([r"(?<=[.;,]) ", r"\n", r" "]), text)
    first = rng.randrange(len(parts))
    del parts[first : first + rng.randrange(1, 4)]
    return " ".join(parts) if rng.random() < 0.7 else "\n".join(parts)


def _cut(text: str, rng: Random) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] if rng.random() < 0.7 else text[place:]


def _lines(text: str, rng: Random) -> str:
    """What logs, quotations and JSON add to lines."""
    begin = rng.choice(["> ", "[rank1]: ", "  ", "ERROR 11-26 10:00:00 [a/b.py:3] ", "web | "])
    text = "\n".join(begin + line for line in text.split("\n"))
    return text if rng.random() < 0.7 else text.replace("\n", r"\n").replace('"', r"\"")


def _twice(text: str, rng: Random) -> str:
    lines = re.split(r"(?<=[.\n])", text)
    place = rng.randrange(len(lines))
    lines.insert(rng.randrange(len(lines)), lines[place])
    return "".join(lines)


_CHANGES = (_numbers, _numbers, _numbers, _units, _without, _cut, _lines, _twice)
