# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's dispatcher tells of each operator that it calls.

The native library observes the operators (see `native/operators.hpp`). It has no headers of
PyTorch, so this module finds out where PyTorch's objects have their parts: it calls some operators
with known arguments, and looks for these in the objects. Where something is not found, nothing is
observed.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

_WORD = 8  # bytes
_TENSOR, _NONE = 1, 0
"""Tags of values that have not changed in any version."""
_VALUES = struct.Struct("<qI4x")
"""A payload and a tag of c10::IValue."""
_RECORD, _TENSOR_IMPL, _STORAGE_IMPL = 512, 208, 72
"""Bytes of PyTorch's objects that are searched."""
_FUNCTIONS_ONLY = (True, *[False] * 9)
_UNUSUAL = """
Conjugate FuncTorchBatched FuncTorchGradWrapper Functionalize Negative NestedTensor Python
Quantized Sparse SparseCsr ZeroTensor
"""
"""Keys of tensors whose elements are not simply those of their memory."""
_REGISTER = "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE"
_REGISTER_HERE = "_ZN2at22addThreadLocalCallbackENS_22RecordFunctionCallbackE"
_UNREGISTER = "_ZN2at14removeCallbackEm"
_NAME = "_ZNK2at14RecordFunction4nameEv"
_ENABLE = "_ZN2at20enableRecordFunctionEb"
_REQUIRES_GRAD = "_ZNK3c1010TensorImpl13requires_gradEv"
_ACCESSORS = "type=dtype dimensions=dim sizes=sizes strides=strides address=data_ptr"
_PLACES = """
schema inputs outputs overload keys elements storage data bytes list_tag int_tag float_tag list
"""
_FUNCTIONS = "name enable requires_grad type dimensions sizes strides address describe begin end"
_WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"
_WRAP_COPY = "_Z16THPVariable_WrapN2at10TensorBaseE"
_TO_PYTHON = "_ZN5torch3jit10toPyObjectEN3c106IValueE"
_Begins = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_Ends = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_Describe = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
_Begin = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)
_End = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)


class UnknownObjectsError(Exception):
    """PyTorch's objects are not as expected."""


class Unsupported(Exception):  # noqa: N818
    """A value of a type that is not converted."""


class _Callback(ctypes.Structure):
    """at::RecordFunctionCallback."""

    _fields_ = (
        ("begins", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("probability", ctypes.c_double),
        ("scopes", ctypes.c_bool * len(_FUNCTIONS_ONLY)),
        ("needs_inputs", ctypes.c_bool),
        ("needs_outputs", ctypes.c_bool),
        ("needs_ids", ctypes.c_bool),
    )


class _ObjectLayout(ctypes.Structure):
    """Layout of `native/operators.cpp`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _PLACES.split()),
        ("unusual", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in _FUNCTIONS.split()),
    )


class Dispatcher:
    """The operators of one process."""

    def __init__(self, torch: ModuleType, core: ctypes.CDLL) -> None:
        self._torch, self._core = torch, core
        folder = Path(torch.__file__ or "").parent / "lib"
        self._libtorch = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
        self._c10 = ctypes.CDLL(str(folder / "libc10.so"))
        self._libpython = ctypes.PyDLL(str(folder / "libtorch_python.so"))
        self._layout = _ObjectLayout()
        self._tags = dict[int, str]()
        name = getattr(self._libtorch, _NAME)
        name.restype, name.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        self._name_of = name
        self._wrap_is_given = not hasattr(self._libpython, _WRAP)
        self._wrap = getattr(self._libpython, _WRAP_COPY if self._wrap_is_given else _WRAP)
        self._wrap.restype, self._wrap.argtypes = ctypes.py_object, (ctypes.c_void_p,)
        self._kept = list[Any]()  # functions that native code calls

    def watch(
        self,
        describe: Callable[[int, str, str], int],
        begin: Callable[[int, int], int],
        end: Callable[[int, int | None, int], None],
    ) -> None:
        """From now on, call these functions for operators; raises UnknownObjectsError.

        describe: once for each operator, with its address, its name and that of its overload. It
        returns the number of arguments and of results, flags, and a bit for each argument that is
        changed, as `operator_of` of `native/operators.cpp` reads them. begin: before a call, with
        the operator and its arguments; its result is 0, or a token for `end`. end: after the call,
        with the operator, its results (None: it failed) and the token.
        """
        try:
            self._learn()
        except (OSError, AttributeError, LookupError, RuntimeError) as error:
            raise UnknownObjectsError(str(error)) from error
        layout = self._layout

        def described(place: int, name: bytes, overload: bytes) -> int:
            return describe(place, name.decode(), overload.decode())

        called = _Describe(described), _Begin(begin), _End(end)
        self._kept += called
        layout.describe, layout.begin, layout.end = (_address(function) for function in called)
        layout.name = _address(self._name_of)
        layout.enable = _address(getattr(self._libtorch, _ENABLE))
        layout.requires_grad = _address(getattr(self._c10, _REQUIRES_GRAD))
        for field, _, name in (pair.partition("=") for pair in _ACCESSORS.split()):
            setattr(layout, field, _address(getattr(self._libtorch, f"aoti_torch_get_{name}")))
        self._core.null_layout(ctypes.byref(layout))
        begins, ends = self._core.null_operator_begins, self._core.null_operator_ends
        self._register(_REGISTER, begins, ends)

    def values(self, address: int, count: int) -> list[Any]:
        """The Python objects of values; raises Unsupported."""
        found = _VALUES.iter_unpack(ctypes.string_at(address, _VALUES.size * count))
        return [
            self._value(address + _VALUES.size * index, *value) for index, value in enumerate(found)
        ]

    def _value(self, address: int, payload: int, tag: int) -> Any:
        if tag == _TENSOR:
            return self._wrapped(address, payload)
        if tag == _NONE:
            return None
        kind = self._tags.get(tag)
        if kind == "int":
            return payload
        if kind == "bool":
            return bool(payload & 1)
        if kind == "float":
            return struct.unpack("<d", struct.pack("<q", payload))[0]
        if kind == "list":
            begin, end = _words(payload + self._layout.list, 2)
            return self.values(begin, (end - begin) // _VALUES.size)
        if kind == "text":
            return ctypes.string_at(_words(payload + 2 * _WORD, 1)[0]).decode()
        if kind == "device":
            return self._torch.device("cuda" if payload & 0xFF else "cpu")
        if kind == "generator":
            return self._object(address, payload)
        raise Unsupported

    def is_gpu(self, address: int) -> bool:
        """Whether a value is a device that is a GPU."""
        ((payload, tag),) = _VALUES.iter_unpack(ctypes.string_at(address, _VALUES.size))
        return self._tags.get(tag) == "device" and payload & 0xFF == 1

    def _wrapped(self, address: int, payload: int) -> Any:
        if self._wrap_is_given:
            return self._given_away(payload, 0, self._wrap)
        return self._wrap(address)

    def _object(self, address: int, payload: int) -> Any:
        convert = getattr(self._libpython, _TO_PYTHON)
        # It returns a class that has one pointer: the caller says where.
        convert.restype, convert.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)
        tag = struct.unpack("<I", ctypes.string_at(address + _WORD, 4))[0]

        def converted(value: int) -> Any:
            made = ctypes.py_object()
            convert(ctypes.byref(made), value)
            result = made.value
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(result))
            return result

        return self._given_away(payload, tag, converted)

    def _given_away(self, payload: int, tag: int, call: Callable[[int], Any]) -> Any:
        """What a function makes of a copy of a value, which it may take away or leave."""
        copy = (ctypes.c_uint64 * 2)(payload, tag)
        self._core.null_count_reference(ctypes.c_void_p(payload), 1)
        result = call(ctypes.addressof(copy))
        if copy[0] == payload and (not tag or copy[1] & 0xFFFFFFFF == tag):
            self._core.null_count_reference(ctypes.c_void_p(payload), -1)
        return result

    def _register(self, function: str, begins: Any, ends: Any) -> Any:
        callback = _Callback(_address(begins), _address(ends), 1.0, _FUNCTIONS_ONLY, True, True)
        register = getattr(self._libtorch, function)
        register.restype, register.argtypes = ctypes.c_uint64, (_Callback,)
        return register(callback)

    @contextmanager
    def _observed(
        self, begins: Callable[[int], None], ends: Callable[[int], None]
    ) -> Iterator[None]:
        errors = list[Exception]()

        def attempt(function: Callable[[int], None], record: int) -> None:
            try:
                function(record)
            except (LookupError, OSError, ValueError) as error:
                errors.append(error)

        def started(context: int, record: int) -> int:
            ctypes.c_void_p.from_address(context).value = None
            attempt(begins, record)
            return context

        called = _Begins(started), _Ends(lambda record, _context: attempt(ends, record))
        number = self._register(_REGISTER_HERE, *called)
        try:
            yield
        finally:
            unregister = getattr(self._libtorch, _UNREGISTER)
            unregister.argtypes = (ctypes.c_uint64,)
            unregister(number)
        for error in errors:
            raise error

    def _learn(self) -> None:
        torch, layout = self._torch, self._layout
        make, tensor = torch.ops.aten, torch.zeros(3, 4111, dtype=torch.uint8, device="cpu")
        other, add = torch.ones_like(tensor), torch.ops.aten.add_.Tensor
        storage = tensor.untyped_storage()
        layout.storage = _find(tensor._cdata, _TENSOR_IMPL, storage._cdata)
        layout.elements = _find(tensor._cdata, _TENSOR_IMPL, tensor.numel())
        keys = torch._C._dispatch_keys(tensor).raw_repr()
        layout.keys = _find(tensor._cdata, _TENSOR_IMPL, keys)
        layout.data = _find(storage._cdata, _STORAGE_IMPL, storage.data_ptr())
        layout.bytes = _find(storage._cdata, _STORAGE_IMPL, storage.nbytes())
        for name in _UNUSUAL.split():
            key = getattr(torch._C.DispatchKey, name)
            layout.unusual |= int(torch._C.DispatchKeySet(key).raw_repr())
        memory = os.open("/proc/self/mem", os.O_RDONLY)

        def word(address: int) -> int:
            return int(struct.unpack("<q", os.pread(memory, _WORD, address))[0])

        def is_list(address: int, first: int) -> bool:
            try:
                return word(word(address)) == first
            except (OSError, OverflowError, ValueError):
                return False

        def begins(record: int) -> None:
            words = _words(record, _RECORD // _WORD)
            name = self._name_of(record)
            for index, found in enumerate(words):
                try:
                    if found > 0 and word(found) == name and found != record + _WORD * index:
                        layout.schema = _WORD * index
                        break
                except (OSError, OverflowError):
                    continue
            else:
                raise LookupError("no schema")
            size = 3
            layout.inputs = next(
                _WORD * index
                for index, found in enumerate(words[:-1])
                if words[index + 1] == size and is_list(record + _WORD * index, tensor._cdata)
            )
            schema = words[layout.schema // _WORD]
            # The name is the first member of a schema, and the name of the overload the second.
            layout.overload = next(
                offset
                for offset in (_WORD, 4 * _WORD)
                if _is_text(memory, word(schema + offset), b"Tensor")
            )
            given = words[layout.inputs // _WORD]
            self._tags[word(given + 5 * _WORD) & 0xFFFFFFFF] = "int"

        def ends(record: int) -> None:
            words = _words(record, _RECORD // _WORD)
            layout.outputs = next(
                _WORD * index
                for index, found in enumerate(words[:-1])
                if words[index + 1] - found == 2 * _WORD
                and _WORD * index != layout.inputs
                and is_list(record + _WORD * index, tensor._cdata)
            )

        try:
            with self._observed(begins, ends):
                add(tensor, other, alpha=7)
            self._learn_tags(make, tensor, other)
        except StopIteration as error:
            raise LookupError("parts of PyTorch's objects") from error
        finally:
            os.close(memory)

    def _learn_tags(self, make: Any, tensor: Any, other: Any) -> None:
        """How values of each type are marked."""
        given: list[tuple[str, list[int], list[int]]] = []

        def note(record: int) -> None:
            begin, count = _words(record + self._layout.inputs, 2)
            words = _words(begin, 2 * count)
            name = ctypes.string_at(self._name_of(record)).decode()
            given.append((name, words[::2], [tag & 0xFFFFFFFF for tag in words[1::2]]))
            if name == "aten::cat":
                first = tensor._cdata
                self._layout.list = next(
                    offset
                    for offset in (2 * _WORD, 3 * _WORD)
                    if _words(_words(words[0] + offset, 1)[0], 1)[0] == first
                )

        generator = self._torch.Generator()
        with self._observed(note, lambda _record: None):
            make.cat.default([tensor, other])
            make.full.default([2], 2.5, device=self._torch.device("cpu"), pin_memory=False)
            make.div.Tensor_mode(tensor, other, rounding_mode="floor")
            make.uniform_.default(self._torch.zeros(1, device="cpu"), generator=generator)
        kinds = {
            "aten::cat": ("list", "int"),
            "aten::full": ("list", "float", "", "", "device", "bool"),
            "aten::div": ("", "", "text"),
            "aten::uniform_": ("", "float", "float", "generator"),
        }
        for name, _payloads, tags in given:
            for kind, tag in zip(kinds.get(name, ()), tags, strict=False):
                if kind:
                    self._tags[tag] = kind
        found = {kind: tag for tag, kind in self._tags.items()}
        self._layout.list_tag = found["list"]
        self._layout.int_tag, self._layout.float_tag = found["int"], found["float"]
        if len({"int", "float", "bool", "device", "text", "generator"} & found.keys()) < 6:
            raise LookupError("types of values")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address))


def _find(address: int, size: int, word: int) -> int:
    """Where an object has a word; raises LookupError."""
    words = _words(address, size // _WORD)
    word = struct.unpack("<q", struct.pack("<Q", word))[0] if word >= 0 else word
    if word not in words:
        raise LookupError(f"{word:#x} is not in an object of {size} bytes")
    return _WORD * words.index(word)


def _is_text(memory: int, address: int, text: bytes) -> bool:
    try:
        return os.pread(memory, len(text) + 1, address) == text + b"\0"
    except (OSError, OverflowError, ValueError):
        return False
