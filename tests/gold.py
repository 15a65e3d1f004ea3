# SPDX-License-Identifier: Apache-2.0
"""Results that are frozen in tests/data/gold: what no rule or model states is at least noticed.

A test passes the results of many cases at once. A failure names each number that differs, with both
values. Where a change is meant, `pytest --freeze PATH` writes the files again and shows the same
differences, which the commit explains.
"""

import dataclasses
import enum
import gzip
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allocbench.allocators import SpecError
from allocbench.base.errors import UserError

_FOLDER = Path(__file__).parent / "data/gold"
_TOLD = _FOLDER.parent / "told"
_SHOWN = 20  # differences
_LONGEST = 24  # values of an array that are frozen one by one; of longer ones, a digest is
_DIGITS = 9
_FACT = re.compile(r"[\w./%-]*(?:\d|[_=:]\w)[\w.,:=/%+-]*")  # a number, or a spec
_OF_THE_HOST = ("allocbench_version", "cpu", "date", "numpy", "python", "seconds", "timer_seconds")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Gold:
    """Compares results with the frozen ones, or freezes them."""

    def __init__(self, freeze: bool) -> None:
        self._freeze = freeze

    def __call__(self, name: str, results: Mapping[str, Any]) -> None:
        """Compare the results of all cases, by case, with those of the file of that name."""
        path = _FOLDER / f"{name}.json.gz"
        found = {case: dict(_leaves(value)) for case, value in results.items()}
        frozen = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
        different = [*_differences(frozen, json.loads(json.dumps(found)))]
        shown = "\n".join([*different[:_SHOWN], *["..."][: len(different) - _SHOWN]])
        if not self._freeze:
            assert not different, f"{len(different)} results of {name} differ\n{shown}"
        elif different:
            path.parent.mkdir(exist_ok=True)
            text = json.dumps(found, sort_keys=True, indent=0).encode()
            path.write_bytes(gzip.compress(text, mtime=0))
            print(f"{path.name}: {len(different)} results are frozen\n{shown}")


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function returns, or its error: the class, and the numbers of the message."""
    try:
        return function(*arguments, **options)
    except UserError as error:
        return {"error": type(error).__name__, "numbers": _NUMBER.findall(str(error))}


def facts(value: Any) -> Any:
    """The same, with the numbers, specs and names of options in place of each sentence.

    A table is its records. What the machine, the day or the version of allocbench decides is left
    out.
    """
    if isinstance(value, pd.DataFrame):
        value = json.loads(value.to_json(orient="records", double_precision=15))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.repr
        }
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    match value:
        case str() if " " in value:
            return _FACT.findall(value)
        case Mapping():
            return {str(key): facts(one) for key, one in value.items() if key not in _OF_THE_HOST}
        case list() | tuple():
            return [facts(one) for one in value]
    return value


def _differences(frozen: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for case in sorted({*frozen, *found}):
        before, after = frozen.get(case, {}), found.get(case, {})
        for path in sorted({*before, *after}):
            if _rounded(before.get(path)) != _rounded(after.get(path)):
                values = f"{before.get(path, 'nothing')!r} -> {after.get(path, 'nothing')!r}"
                yield f"{case} {path}: {values}"


def _rounded(value: Any) -> Any:
    """The same, or of a number with many digits in a text, the first of them."""
    long = isinstance(value, str) and re.fullmatch(r"\d+\.\d{8,}(e-\d+)?", value)
    return f"{float(value):.{_DIGITS}g}" if long else value


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers, texts and truth values inside a value, each with where it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.repr]
        value = {name: getattr(value, name) for name in names}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    match value:
        case None | bool() | int() | str():
            yield path, value.name if isinstance(value, enum.Enum) else value
        case enum.Enum():
            yield path, value.name
        case float():
            yield path, float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else repr(value)
        case np.generic():
            yield from _leaves(value.item(), path)
        case np.ndarray() if value.size > _LONGEST:
            whole = np.round(value, _DIGITS) if value.dtype.kind == "f" else value
            digest = hashlib.sha256(whole.tobytes()).hexdigest()[:12]
            yield path, f"{value.dtype}{list(value.shape)} {digest}"
        case np.ndarray():
            yield from _leaves(value.tolist(), path)
        case Mapping():
            for key, one in value.items():
                yield from _leaves(one, f"{path}.{key}" if path else str(key))
        case set() | frozenset():
            yield from _leaves(sorted(value), path)
        case list() | tuple() | Iterator():
            count = 0
            for count, one in enumerate(value, 1):
                yield from _leaves(one, f"{path}[{count - 1}]")
            yield f"{path}.count", count
        case _:
            raise TypeError(f"{path}: {type(value).__name__} has no frozen form")


@pytest.fixture(scope="session")
def gold(request: pytest.FixtureRequest) -> Gold:
    return Gold(request.config.getoption("--freeze"))


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare what is said of texts with tests/data/told/NAME.txt, which has both.

    There, a text follows "$ ", and the line that is said of it follows. With `begin`, only texts
    that begin so take part. A new text is written into the file, and frozen.
    """

    def compare(name: str, say: Callable[[str], str], begin: str = "") -> None:
        path = _TOLD / f"{name}.txt"
        lines = transcript(name)
        found = {text: say(text) for text in lines if text.startswith(begin)}
        if request.config.getoption("--freeze"):
            whole = "".join(f"$ {text}\n{line}\n" for text, line in (lines | found).items())
            path.write_text(whole, encoding="utf-8")
        else:
            assert found == {text: lines[text] for text in found}

    return compare


def transcript(name: str) -> dict[str, str]:
    """By text: the line that is said of it."""
    lines = (_TOLD / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    found = dict[str, str]()
    for line in lines:
        if line.startswith("$ "):
            found[text := line[2:]] = ""
        else:
            found[text] = line
    return found


def said(function: Callable[..., Any], *arguments: Any) -> str:
    """The message of an error for users, which is one line."""
    with pytest.raises((UserError, SpecError)) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--freeze", action="store_true", help="write the frozen results again")
