# SPDX-License-Identifier: Apache-2.0
"""Functions in the place of PyTorch's.

For programs, they are PyTorch's own: modes and classes with `__torch_function__` see them, pickle
finds them, and TorchScript compiles them. torch.compile would end its graphs at each of them, so
PyTorch's functions are put back when a program calls it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_LISTS = (list, tuple)
_TABLES = (
    ("torch.ao.quantization.utils", "func_list"),
    ("torch.ao.quantization.utils", "method_list"),
    ("torch.fx.operator_schemas", "_manual_overrides"),
    ("torch.masked.maskedtensor.reductions", "TENSOR_REDUCE_FNS"),
    ("torch.masked.maskedtensor.reductions", "TENSOR_REDUCE_MAP"),
    ("torch.masked.maskedtensor.reductions", "TORCH_REDUCE_FNS"),
    ("torch.masked.maskedtensor.reductions", "TORCH_REDUCE_MAP"),
    ("torch.nn.parameter", "UninitializedTensorMixin._allowed_methods"),
)
"""Lists, sets and dicts in which PyTorch looks up a function that a program calls."""


class Functions:
    """What was replaced in PyTorch."""

    def __init__(self, torch: ModuleType, at_end: Callable[[], None]) -> None:
        """at_end: called when PyTorch's functions are put back."""
        self._torch, self._at_end = torch, at_end
        self._replaced = list[tuple[Any, str, Any]]()
        self._made = set[int]()  # functions that replace others, by id
        self._tables = [_device_constructors(), *_tables()]
        self._is_compiling = torch.compiler.is_compiling
        compile_ = torch.compile

        @functools.wraps(compile_)
        def compiled(*arguments: Any, **options: Any) -> Any:
            self._put_back()
            return compile_(*arguments, **options)

        self.set(torch, "compile", compiled)

    def replace(self, name: str, make: Callable[[str, Any], Any]) -> None:
        """Replace what has this name, tensor methods too. make: from a name and the original."""
        torch, functional = self._torch, self._torch.nn.functional
        if original := getattr(torch.Tensor, name, None):
            self.set(torch.Tensor, name, functools.wraps(original)(make(name, original)))
        if name.startswith("__"):
            return
        wrapped, builtins = dict[int, Any](), torch.jit._builtins
        for space in (torch, torch._VF, torch._C._nn, torch._C._linalg, torch.linalg, functional):
            function: Any = getattr(space, name, None)
            if not isinstance(function, BuiltinFunctionType) and id(function) not in self._made:
                continue  # functions in Python call such functions
            if id(function) not in wrapped:
                made = functools.wraps(function)(make(name, function))
                made.__module__, made.__qualname__ = space.__name__, name  # for pickle
                if operator := builtins._find_builtin(function):
                    builtins._register_builtin(made, operator)  # for TorchScript
                wrapped[id(function)] = made
                self._made.add(id(made))
            self.set(space, name, wrapped[id(function)])

    def instead_of(self, original: Any) -> Callable[[Any], Any]:
        """A decorator for what replaces a function of PyTorch.

        While torch.compile traces, the function is the original one. Modes and classes with
        `__torch_function__` see the function that the program called.
        """
        overridden = self._torch.overrides.has_torch_function
        override, is_compiling = self._torch.overrides.handle_torch_function, self._is_compiling

        def decorated(function: Any) -> Any:
            def called(*arguments: Any, **options: Any) -> Any:
                if is_compiling():
                    return original(*arguments, **options)
                values = (*arguments, *options.values()) if options else arguments
                is_overridden = overridden(values)
                for value in arguments:
                    if type(value) in _LISTS and overridden(value):
                        is_overridden = True
                if is_overridden:
                    return override(called, _flat(arguments, options), *arguments, **options)
                return function(*arguments, **options)

            return called

        return decorated

    def set(self, space: Any, name: str, function: Any) -> None:
        """Replace an attribute of a module or class until torch.compile is called."""
        if space is self._torch.Tensor and isinstance(function, FunctionType):
            function.__module__, function.__qualname__ = "torch", f"Tensor.{name}"  # for pickle
        self._replaced.append((space, name, vars(space).get(name)))
        for table in self._tables:
            _add(table, getattr(space, name, None), function)
        setattr(space, name, function)

    def _put_back(self) -> None:
        self._at_end()
        for space, name, original in reversed(self._replaced):
            if original is None:  # inherited
                delattr(space, name)
            else:
                setattr(space, name, original)
        self._replaced.clear()


def replace_in(package: str, name: str, function: Any) -> None:
    """Replace what `package` has under this name, also in its modules that have imported it."""
    original = getattr(sys.modules[package], name)
    for module in tuple(sys.modules.values()):
        found = getattr(module, "__dict__", {}).get(name)
        if found is original and module.__name__.startswith(package):
            setattr(module, name, function)


def _device_constructors() -> set[Any]:
    """The functions that make a tensor on the device of `with torch.device("cuda")`."""
    constructors: set[Any] = import_module("torch.utils._device")._device_constructors()
    return constructors


def _tables() -> Iterator[list[Any] | set[Any] | dict[Any, Any]]:
    """The tables of modules that are imported; the others will have functions that replace some."""
    for module, name in _TABLES:
        if module in sys.modules:
            try:
                yield attrgetter(name)(sys.modules[module])
            except AttributeError:  # another version of PyTorch
                continue


def _add(
    table: list[Any] | set[Any] | dict[Any, Any], original: object, replacement: object
) -> None:
    """Have a table answer for the replacement of a function as for the function."""
    if original not in table:
        return
    if isinstance(table, dict):
        table[replacement] = table[original]
    elif isinstance(table, set):
        table.add(replacement)
    else:
        table.append(replacement)


def _flat(arguments: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
    """Arguments, and the elements of those that are lists."""
    lists = [value for value in arguments if type(value) in _LISTS]
    return [*arguments, *options.values(), *(element for values in lists for element in values)]
