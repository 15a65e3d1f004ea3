# SPDX-License-Identifier: Apache-2.0
"""Files that are well-formed, but whose values contradict each other.

An input of the fuzzer is a choice of a file and a list of damages. Each has four bytes: two choose
a place in the file, one what happens there, one with which value. Times go backwards, ids are
negative or huge, sizes are no numbers, entries occur twice or not at all, and lines end in several
ways.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40),
    *(float("nan"), float("inf"), 1e300, -0.5, None, "", True, [], {}),
)
_ENDS = ("\n", "\r\n", "\r", "\n\n", "")
_JSON = "snapshot_values", "profile", "model_config"
_TEXTS = "csv", "lifetimes", "rmm_log", "request_log", "error_text", "buffer_assignment"
Writer = Callable[[Any], bytes]
Place = tuple[Any, Any]  # a list or a table, and a position or a name in it


def well_formed(seeds: Mapping[str, Sequence[bytes]]) -> dict[str, list[tuple[Any, Writer]]]:
    """By target of the fuzzer: contents of files that can be damaged, and what writes each."""
    found: dict[str, list[tuple[Any, Writer]]] = {}
    for name in _JSON:
        found[name] = [(json.loads(one), _as_json) for one in seeds[name]]
    for name in _TEXTS:
        found[name] = [(_numbers_of(one.decode()), _as_text) for one in seeds[name]]
    return found


def _as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _as_text(content: Any) -> bytes:
    """Text that `_numbers_of` has taken apart."""
    lines = ("".join(map(str, line)) if isinstance(line, list) else str(line) for line in content)
    return "".join(lines).encode(errors="replace")


def _numbers_of(text: str) -> list[Any]:
    """Each line as words and numbers, and its end: what can be damaged apart."""
    return [
        [int(part) if part.isdecimal() else part for part in re.split(r"(\d+|[,;\t\n])", line)]
        for line in text.splitlines(keepends=True)
    ]


def damaged(content: Any, choices: bytes) -> Any:
    """A copy of nested lists and tables with these damages."""
    content = copy.deepcopy(content)
    for begin in range(0, len(choices) - 3, 4):
        if places := list(_places(content)):
            high, low, kind, value = choices[begin : begin + 4]
            inside, at = places[((high << 8) + low) * len(places) >> 16]
            _KINDS[kind % len(_KINDS)](inside, at, value, places)
    return content


def _places(content: Any) -> Iterator[Place]:
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for at, value in items:
        yield content, at
        if isinstance(value, dict | list):
            yield from _places(value)


def _replace(inside: Any, at: Any, value: int, _places: Sequence[Place]) -> None:
    inside[at] = _VALUES[value % len(_VALUES)]


def _of_another(inside: Any, at: Any, value: int, places: Sequence[Place]) -> None:
    """The value of another place: the same id, address or time once more."""
    other, there = places[value * len(places) >> 8]
    if there in other if isinstance(other, dict) else there < len(other):
        inside[at] = copy.deepcopy(other[there])


def _shift(inside: Any, at: Any, value: int, _places: Sequence[Place]) -> None:
    """A little more, a little less, or the negative of a number; a line that ends otherwise."""
    if isinstance(inside[at], int):
        inside[at] = inside[at] + value - 128 if value else -inside[at]
    elif inside[at] == "\n":
        inside[at] = _ENDS[value % len(_ENDS)]


def _exchange(inside: Any, at: Any, value: int, _places: Sequence[Place]) -> None:
    """Two entries change places, or all are in the opposite order."""
    if isinstance(inside, dict):
        inside[at] = inside[[*inside][value % len(inside)]]
    elif value % 8 == 0:
        inside.reverse()
    else:
        other = value % len(inside)
        inside[at], inside[other] = inside[other], inside[at]


def _repeat(inside: Any, at: Any, value: int, _places: Sequence[Place]) -> None:
    if isinstance(inside, list):
        inside[at:at] = [copy.deepcopy(inside[at]) for _ in range(1 + value % 3)]


def _remove(inside: Any, at: Any, _value: int, _places: Sequence[Place]) -> None:
    del inside[at]


_KINDS: tuple[Callable[[Any, Any, int, Sequence[Place]], None], ...] = (
    *(_replace, _of_another, _shift, _exchange, _repeat, _remove),
)
