# SPDX-License-Identifier: Apache-2.0
"""Follows on the host what a program does with small tensors whose values the host can know.

Such values come from the host, or from functions such as `torch.ones`. If the host knows all
tensors that an operator of PyTorch reads, it computes the result as well. What the program reads
from it is then not 0, and where a shape depends on such values, it is as on a real GPU.

The native library keeps such values by address (see `native/values.hpp`). So views of a tensor
share them, and whatever reads the memory gets them.

The GPU's part stays the same: each operator also runs there, and makes its allocations. Operators
that consist of others are not computed: their parts are.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from .dispatcher import Dispatcher, Unsupported
from .reads import Reads

MOST = 1 << 20
"""Elements of the largest tensor that is followed, if they are whole numbers or truth values."""
MOST_REAL = 1 << 16
"""Elements of the largest tensor that is followed, if they are real numbers.

Those that were drawn from an interval may be as many as MOST, because they choose edges and tokens.
"""


class HostCopies:
    """The known values of one process."""

    def __init__(self, torch: ModuleType, core: ctypes.CDLL) -> None:
        self._torch, self._core, self._cpu = torch, core, torch.device("cpu")

    def is_small(self, tensor: Any, most_real: int = MOST_REAL) -> bool:
        """Whether a tensor, on any device, has few elements, of a type that is followed."""
        if tensor.layout is not self._torch.strided or tensor.is_complex() or tensor.is_quantized:
            return False
        return bool(tensor.numel() <= (most_real if tensor.is_floating_point() else MOST))

    def may_have(self, tensor: Any, most_real: int = MOST_REAL) -> bool:
        """Whether a tensor on the GPU is followed: no parameter, nor what depends on one."""
        return tensor.is_cuda and self.is_small(tensor, most_real) and not tensor.requires_grad

    def knows(self, tensor: Any) -> bool:
        """Whether the values of a tensor on the GPU are known."""
        return self.get(tensor) is not None

    def get(self, tensor: Any) -> Any:
        """A tensor on the host with the values of one on the GPU; None: not known."""
        if not self.may_have(tensor, MOST):
            return None
        shape, strides = tensor.shape, tensor.stride()
        if tensor.numel() and _span(shape, strides) > 2 * MOST:
            return None
        values = self._torch.empty_strided(shape, strides, dtype=tensor.dtype, device=self._cpu)
        return values if self._read(tensor, values) else None

    def keep(self, tensor: Any, values: Any) -> None:
        """Note the values of a tensor on the GPU."""
        shape, strides = tensor.shape, tensor.stride()
        if values.shape != shape:
            self.forget(tensor)
            return
        count = tensor.numel()
        if not count:
            return
        dtype, span = tensor.dtype, _span(shape, strides)
        if span == count and values.dtype == dtype and values.stride() == strides:
            host = values.resolve_neg()
        else:
            host = self._torch.empty_strided(shape, strides, dtype=dtype, device=self._cpu)
            if span != count and not self._read(tensor, host):
                self.forget(tensor)  # the elements have others between them, which are not known
                return
            host.copy_(values.detach())
        self._core.null_follow(tensor.data_ptr(), host.data_ptr(), span * host.element_size())

    def forget(self, tensor: Any) -> None:
        """Note that the values in the memory of a tensor are not known any more."""
        if tensor.is_cuda:
            there = tensor.untyped_storage()
            self._core.null_forget(there.data_ptr(), there.nbytes())

    def _read(self, tensor: Any, host: Any) -> bool:
        """Copy what is known to all of the memory of a tensor like it; False: not all of it is."""
        size = host.untyped_storage().nbytes()
        return bool(self._core.null_known(tensor.data_ptr(), host.data_ptr(), size))


def _span(shape: Any, strides: Any) -> int:
    """How many elements lie from the first one of a tensor to its last one."""
    steps = zip(shape, strides, strict=True)
    return 1 + sum(int((size - 1) * stride) for size, stride in steps)


IGNORED, ALWAYS, CREATES, OVERWRITES = 1, 2, 4, 8
UNWRITTEN, NATIVE, COUNTS = 16, 32, 64
"""Flags of `native/operators.cpp`."""
_OF_SHAPES = """
_resize_output_ as_strided_ detach_ rename_ record_stream requires_grad_ resize_ resize_as_
resize_as_sparse_ retain_grad set_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_
_local_scalar_dense
"""
"""They change no element, whatever their schema says. Reads are answered from memory."""
_UNWRITTEN = "empty empty_like empty_permuted empty_strided new_empty new_empty_strided"
_OVERWRITING = "copy_ fill_"
_OF_OTHERS = """
_to_copy clone full full_like new_full new_ones new_zeros ones ones_like scalar_tensor zero_ zeros
zeros_like
"""
"""They consist of other operators, which are computed."""
_COUNTED = "nonzero _unique2 unique_consecutive unique_dim equal"
"""They read from the GPU how many elements their result has, or what it is."""
_UNDECLARED = """
_batch_norm_impl_index batch_norm_gather_stats batch_norm_gather_stats_with_counts cudnn_batch_norm
native_batch_norm rrelu_with_noise rrelu_with_noise_
"""
"""They change arguments that their schemas do not name."""
_SHARING = """
_sparse_compressed_tensor_unsafe _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors
"""
"""The memory of a sparse tensor is that of an argument."""
_PUBLIC = ("aten", "prims", "torchvision")


class Operator:
    """An operator of PyTorch. function: one overload of `torch.ops`."""

    def __init__(self, torch: ModuleType, name: str, overload: str) -> None:
        library, _, short = name.partition("::")
        self.name, self.library, self.full_name = short, library, name
        packet = getattr(getattr(torch.ops, library), short)
        self.function = getattr(packet, overload or "default")
        schema = self.function._schema
        self.arguments, self.results = len(schema.arguments), len(schema.returns)
        self.keywords = [argument.name for argument in schema.arguments if argument.kwarg_only]
        self.plain = self.arguments - len(self.keywords)  # arguments without a name come first
        named = enumerate(self.keywords, self.plain)
        self.device = next((number for number, key in named if key == "device"), None)
        self.out = [argument.is_out for argument in schema.arguments]
        self.written = [
            number
            for number, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.is_view = not self.written and any(one.alias_info for one in schema.returns)
        self.has_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
        seeded = torch.Tag.nondeterministic_seeded
        self.is_random = seeded in self.function.tags
        composite = "CompositeImplicitAutograd"
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        self.is_composite = has_kernel(self.function.name(), composite)
        if short in _UNDECLARED.split():
            self.written = [*range(self.arguments)]
        elif short in _SHARING.split():
            names = [argument.name for argument in schema.arguments]
            self.written = [names.index("values")]  # now or later
        elif library == "c10d" and not short.startswith(("barrier", "send")):
            self.written = [0]  # what is received
        self.overwritten = {number for number, is_out in enumerate(self.out) if is_out}
        if short in _OVERWRITING.split():
            self.overwritten |= {*self.written}
        self.is_computed = not self.is_random and short not in (_UNWRITTEN + _SHARING).split()
        self.counts = short in _COUNTED.split()

    def call(self, values: Sequence[Any]) -> Any:
        """Call it with the values of all arguments."""
        named = zip(self.keywords, values[self.plain :], strict=True)
        return self.function(*values[: self.plain], **dict(named))


Finish = Callable[[list[Any]], None]
Begin = Callable[[Operator, list[Any]], "Finish | None"]


class Follower:
    """Computes on the host what operators do."""

    def __init__(
        self, torch: ModuleType, dispatcher: Dispatcher, copies: HostCopies, reads: Reads
    ) -> None:
        self._torch, self._dispatcher, self._copies, self._reads = torch, dispatcher, copies, reads
        self._operators = dict[int, Operator]()
        self._special = dict[str, Begin]()
        self._counting = set[str]()
        self._waiting = dict[int, Finish]()
        self._tokens = itertools.count(1)
        # What is called within these is seen by no mode, subclass, transform or derivative.
        native, removed = torch._C, torch._C._dispatch_tls_local_exclude_set()
        for key in ("AutogradFunctionality", "ADInplaceOrView"):
            removed |= native.DispatchKeySet(getattr(native.DispatchKey, key))
        usual = native._dispatch_tls_local_include_set()
        self._keys = functools.partial(native._ForceDispatchKeyGuard, usual, removed)
        self._functions = native.DisableTorchFunction

    def special(
        self, names: str, begin: Begin, library: str = "aten", counting: bool = False
    ) -> None:
        """Have a function called before these operators of a library instead of computing them.

        Its result is called with the results of the operator. counting: only where the host knows
        the arguments, or the first one has whole numbers or truth values.
        """
        of_library = {f"{library}::{name}": begin for name in names.split()}
        self._special |= of_library
        self._counting |= of_library.keys() if counting else set()

    def follow(self) -> None:
        """Start; raises UnknownObjectsError."""
        self._dispatcher.watch(self._describe, self._begin, self._end)

    def _describe(self, address: int, name: str, overload: str) -> int:
        try:
            with self._keys(), self._functions():
                operator = Operator(self._torch, name, overload)
        except Exception:  # an operator of which PyTorch has no function
            return IGNORED << 16
        self._operators[address] = operator
        written = sum(1 << number for number in operator.written if number < 40)
        flags = self._flags(operator)
        return operator.arguments | operator.results << 8 | flags << 16 | written << 24

    def _flags(self, operator: Operator) -> int:
        name, overwrites = operator.name, OVERWRITES if operator.overwritten else 0
        if operator.full_name in self._counting:
            return COUNTS | overwrites
        if operator.full_name in self._special:
            # The native library does not find the memory of a sparse tensor.
            return overwrites | (
                ALWAYS if operator.has_tensors and name != "_coalesce" else CREATES
            )
        if name in _UNWRITTEN.split():
            return UNWRITTEN
        if name in _OF_SHAPES.split() or operator.is_view:
            return IGNORED
        if name in _OF_OTHERS.split():
            return IGNORED
        if operator.is_composite and name not in (_UNDECLARED + _SHARING).split():
            return IGNORED
        if operator.library not in _PUBLIC:
            return 0
        if operator.device is not None and not operator.has_tensors and not operator.is_random:
            return CREATES | (NATIVE if operator.full_name == "aten::arange" else 0)
        is_native = operator.full_name in ("aten::add_", "aten::copy_", "aten::fill_")
        return overwrites | (NATIVE if is_native else 0)

    def _begin(self, address: int, inputs: int) -> int:
        operator = self._operators.get(address)
        if operator is None:
            return 0
        try:
            return self._begun(operator, inputs)
        except Exception:  # a function that the host cannot compute
            return 0

    def _begun(self, operator: Operator, inputs: int) -> int:
        begin = self._special.get(operator.full_name, self.computed)
        if operator.device is not None and not operator.has_tensors:
            if not self._dispatcher.is_gpu(inputs + 16 * operator.device):
                return 0
        elif operator.full_name not in self._special and operator.library not in _PUBLIC:
            return 0
        with self._keys(), self._functions():
            try:
                count = operator.arguments if operator.library != "c10d" else 0
                values = self._dispatcher.values(inputs, count)
            except Unsupported:
                return 0
            finish = begin(operator, values)
        if finish is None:
            return 0
        token = next(self._tokens)
        self._waiting[token] = finish
        return token

    def _end(self, address: int, outputs: int | None, token: int) -> None:
        finish = self._waiting.pop(token)
        operator = self._operators[address]
        with self._keys(), self._functions():
            try:
                values = []
                if outputs is not None:
                    values = self._dispatcher.values(outputs, operator.results)
            except Unsupported:
                values = []
            try:
                finish(values)
            except Exception:  # a function that the host cannot compute
                for value in _tensors(values):
                    self._copies.forget(value)

    def computed(self, operator: Operator, values: list[Any]) -> Finish | None:
        """Compute an operator on the host, if it knows the tensors that it reads."""
        if not operator.is_computed:
            return None
        known = [
            self._blank(value) if number in operator.overwritten else self.on_host(value)
            for number, value in enumerate(values)
        ]
        if any(value is _UNKNOWN for value in known):
            return None
        if operator.device is not None:
            known[operator.device] = "cpu"
        if operator.written:
            return self._changed(operator, values, known)
        computed = list[Any]()
        numbers = None
        if operator.counts:
            computed = _results(operator.call(known))
            numbers = [_count(operator.name, computed, known)]
        end = self._reads.answer_until(numbers or [0])

        def finish(results: list[Any]) -> None:
            end()
            unknown = [
                result
                for result in _tensors(results)
                if self._copies.may_have(result) and not self._copies.knows(result)
            ]
            if unknown:
                made = computed or _results(operator.call(known))
                for result, value in zip(_tensors(results), _tensors(made), strict=True):
                    if self._copies.may_have(result):
                        self._copies.keep(result, value)

        return finish

    def _changed(self, operator: Operator, values: list[Any], known: list[Any]) -> Finish | None:
        """For an operator that changes arguments."""
        pairs = [
            (tensor, value)
            for number in operator.written
            for tensor, value in zip(
                _tensors([values[number]]), _tensors([known[number]]), strict=True
            )
            if tensor.is_cuda
        ]
        if not pairs or not all(self._copies.may_have(tensor) for tensor, _ in pairs):
            return None
        operator.call(known)
        end = self._reads.answer_until([0])

        def finish(_results: list[Any]) -> None:
            end()
            for tensor, value in pairs:
                self._copies.keep(tensor, value)

        return finish

    def _blank(self, value: Any) -> Any:
        """A tensor on the host like the argument, which an operator overwrites."""
        torch = self._torch
        if isinstance(value, torch.Tensor):
            if not self._copies.is_small(value):
                return _UNKNOWN
            return torch.zeros(value.shape, dtype=value.dtype, device="cpu")
        return [*map(self._blank, value)] if isinstance(value, list) else value

    def on_host(self, value: Any) -> Any:
        """An argument with tensors on the host in the place of those on the GPU, or _UNKNOWN."""
        if isinstance(value, self._torch.Tensor):
            if value.is_cuda:
                known = self._copies.get(value)
                return _UNKNOWN if known is None else known
            return value.detach() if self._copies.is_small(value) else _UNKNOWN
        if isinstance(value, list):
            parts = [*map(self.on_host, value)]
            return _UNKNOWN if any(part is _UNKNOWN for part in parts) else parts
        if isinstance(value, self._torch.device):
            return self._torch.device("cpu")
        return value

    def is_known(self, value: Any) -> bool:
        """Whether the host knows an argument."""
        return self.on_host(value) is not _UNKNOWN


_UNKNOWN = object()


def _tensors(values: Sequence[Any]) -> list[Any]:
    """The tensors among values and their lists."""
    found = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _tensors(value)
        elif hasattr(value, "untyped_storage"):
            found.append(value)
    return found


def _results(value: Any) -> list[Any]:
    return [*value] if isinstance(value, tuple) else [value]


def _count(name: str, results: list[Any], arguments: list[Any]) -> int:
    """What an operator of _COUNTED reads."""
    if name == "equal":
        return int(results[0])
    return int(results[0].shape[arguments[1]] if name == "unique_dim" else len(results[0]))
