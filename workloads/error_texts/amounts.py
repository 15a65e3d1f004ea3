# SPDX-License-Identifier: Apache-2.0
"""Sizes in texts: what programs print, and the range of bytes that it stands for."""

import re
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from allocbench.base.error_text import Amount, ErrorText

MIB = 1 << 20
_MOST_LETTERS = 20_000
"""Of a message, from its first words on."""
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_NUMBER = r"[0-9]{1,25}(?:,[0-9]{3}(?![0-9])){0,8}(?:[.,][0-9]{1,9})?"
_UNIT = r"(?:bytes?|[KMGTPE]?i?B|[KMGT])\b"

Found = Iterator[tuple[int, ErrorText]]
"""Each error of one program: where it begins, and what it says."""


def amount(number: str, unit: str) -> Amount:
    """The range of a printed number: half a unit of its last digit to both sides."""
    scale = Decimal(_scale(unit))
    value = Decimal(re.sub(r",(?=[0-9]{3}(?:[.,]|$))", "", number).replace(",", "."))
    places = -int(value.as_tuple().exponent)
    if scale == 1:
        return Amount(int(value), int(value))
    half = Decimal(1).scaleb(-places) / 2
    low, high = (value - half) * scale, (value + half) * scale
    return Amount(
        max(0, int(low.to_integral_value(ROUND_CEILING))), int(high.to_integral_value(ROUND_FLOOR))
    )


def size(text: str) -> Amount:
    """The range of a printed size, in bytes if it has no unit."""
    number = re.match(_NUMBER, text)
    assert number
    return amount(number[0], text[number.end() :].strip() or "B")


def floor(number: str, unit: str) -> Amount:
    """The range of a whole number that was rounded down."""
    scale = _scale(unit)
    return Amount(int(number) * scale, (int(number) + 1) * scale - 1)


def twice_rounded(number: str, unit: str) -> Amount:
    """The range of a number of XLA and TensorFlow.

    They round down to the unit below, and then like other programs.
    """
    scale = _scale(unit)
    printed = amount(number, unit)
    return Amount(printed.low, printed.high + (scale // 1024 if scale > 1024 else 0))


def _scale(unit: str) -> int:
    """Programs write GB and mean GiB."""
    letter = unit[0].lower()
    return int(1024 ** _UNITS[letter if letter in _UNITS else ""])


def find(pattern: str, text: str) -> Amount | None:
    """The first amount in a text where AMOUNT stands in a pattern."""
    match = compiled(pattern).search(text)
    return amount(match[1], match[2]) if match else None


def each(pattern: str, text: str) -> Iterator[re.Match[str]]:
    """Each match of a pattern that `compiled` takes."""
    return compiled(pattern).finditer(text)


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern in which AMOUNT stands for a size, and SIZE_name for one that may have no unit.

    The first has two groups, the number and its unit; the second is the group `name`.
    """
    named = re.sub(r"SIZE_(\w+)", lambda name: f"(?P<{name[1]}>{_NUMBER}(?: ?{_UNIT})?)", pattern)
    return re.compile(named.replace("AMOUNT", f"({_NUMBER}) ?({_UNIT})"))


def messages(
    pattern: str, text: str, most: int = _MOST_LETTERS
) -> Iterator[tuple[re.Match[str], str]]:
    """Each match, with the text from there to the next one."""
    matches = list(each(pattern, text))
    ends = [match.start() for match in matches[1:]] + [len(text)]
    for match, end in zip(matches, ends, strict=False):
        yield match, text[match.start() : min(end, match.start() + most)]
