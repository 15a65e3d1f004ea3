# SPDX-License-Identifier: Apache-2.0
"""What the public functions of a module return for arguments that are drawn by their annotations.

Functions, data classes and their methods take part if each argument is a number, a text, a truth
value, a literal, a data class of such values, or a tuple or sequence of these. Values are few and
lie close together, so that arguments are often equal.
"""

import dataclasses
import enum
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from allocbench.base.errors import UserError
from tests.gold import facts

_GIB = 1 << 30
_VALUES: dict[Any, Sequence[Any]] = {
    bool: (False, True),
    int: (0, 0, 1, 1, 2, 3, 7, 9, 12, 512, 1023, 1024000, _GIB, _GIB + 512, 3 * _GIB, 24 * _GIB),
    float: (0.0, 0.5, 0.5, 1.0, 1.5, 31.2, 999.4, 999.5, 1023.6, 4e-7, 9e9),
    str: (
        *("", "a", "b", "caching", "caching:max_split_size_mb=64", "caching:max_split_size_mb=94"),
        *("sim:3GiB", "a.py:3 f", "it"),
    ),
    type(None): (None,),
}
_SEQUENCES = (list, Sequence, Collection, Iterable)


class _UndrawableError(Exception):
    pass


def results(module: types.ModuleType, count: int = 40) -> dict[str, Any]:
    """By function: what each of that many calls returns, or the class of its error."""
    found: dict[str, Any] = {}
    for name, function in _public(module):
        rng, told = Random(f"{module.__name__} {name}"), list[Any]()
        try:
            for _ in range(count):
                told.append(_outcome(_call(function, rng)))
        except _UndrawableError:
            continue
        found[name] = told
    return found


def _public(module: types.ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and dataclasses.is_dataclass(value):
            for inner, member in vars(value).items():
                if inner.startswith("_"):
                    continue
                if inspect.isfunction(member):
                    yield f"{name}.{inner}", member
                elif isinstance(member, property) and member.fget is not None:
                    yield f"{name}.{inner}", member.fget


def _call(function: Callable[..., Any], rng: Random) -> Callable[[], Any]:
    """The function with drawn arguments. A method gets an object of its class."""
    hints = _hints(function)
    arguments = list[Any]()
    options = dict[str, Any]()
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            owner = inspect.getmodule(function)
            hints["self"] = getattr(owner, function.__qualname__.split(".")[0])
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name not in hints:
            raise _UndrawableError
        value = _drawn(hints[name], rng)
        if parameter.kind is parameter.KEYWORD_ONLY:
            options[name] = value
        else:
            arguments.append(value)
    return lambda: function(*arguments, **options)


def _hints(value: Any) -> dict[str, Any]:
    try:
        return get_type_hints(value)
    except NameError as error:  # of a module that only type checkers import
        raise _UndrawableError from error


def _drawn(hint: Any, rng: Random) -> Any:
    if hint in _VALUES:
        return rng.choice(_VALUES[hint])
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return rng.choice(inner)
    if origin in (Union, types.UnionType):
        return _drawn(rng.choice(inner), rng)
    if origin is tuple and inner[1:] != (...,):
        return tuple(_drawn(one, rng) for one in inner)
    if origin is tuple or origin in _SEQUENCES:
        return tuple(_drawn(inner[0], rng) for _ in range(rng.randrange(4)))
    if origin in (dict, Mapping) and inner[0] is str:
        return {_drawn(str, rng): _drawn(inner[1], rng) for _ in range(rng.randrange(3))}
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return rng.choice([*hint])
    if not (inspect.isclass(hint) and dataclasses.is_dataclass(hint)):
        raise _UndrawableError
    hints = _hints(hint)
    given = {one.name: _drawn(hints[one.name], rng) for one in dataclasses.fields(hint) if one.init}
    try:
        return hint(**given)
    except UserError as error:
        raise _UndrawableError from error


def _outcome(call: Callable[[], Any]) -> Any:
    """The facts of a result, and how many words its sentences have."""
    try:
        value = call()
        found = facts([*value] if isinstance(value, Iterator) else value)
    except Exception as error:  # what is drawn is not always meant
        return type(error).__name__
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [found, sum(len(one.split()) for one in texts if isinstance(one, str))]
