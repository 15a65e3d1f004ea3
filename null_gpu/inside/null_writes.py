# SPDX-License-Identifier: Apache-2.0
"""Ends host copies where memory is written, now or later, without PyTorch counting it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

_UNCOUNTED = """
_batch_norm_impl_index _batch_norm_with_update _foreach_lerp_ _foreach_zero_
_native_batch_norm_legit _sobol_engine_ff_ batch_norm batch_norm_gather_stats
batch_norm_gather_stats_with_counts batch_norm_update_stats cudnn_batch_norm
fused_moving_avg_obs_fake_quant instance_norm native_batch_norm rrelu_with_noise rrelu_with_noise_
"""
"""Functions that write to arguments of which PyTorch does not count all changes."""
_UNCOUNTED_GROUPS = ("_amp_", "_fused_")
"""The same is true of functions whose names begin like this."""
_OF_STORAGE = "__setitem__ byteswap copy_ fill_ resize_"
_SHARED = """
sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
sparse_csr_tensor unsafe_chunk unsafe_split unsafe_split_with_sizes
"""
"""Their results share memory with their last tensor, but are counted on their own."""


class _Functions(Protocol):
    """`Functions` of null_functions."""

    def replace(self, name: str, make: Callable[[str, Any], Any]) -> None: ...
    def set(self, space: Any, name: str, function: Any) -> None: ...
    def instead_of(self, original: Any) -> Callable[[Any], Any]: ...


class _HostCopies(Protocol):
    """`HostCopies` of null_host_copies."""

    def forget(self, tensor_or_storage: Any) -> None: ...
    def never(self, tensor_or_storage: Any) -> None: ...


class Writes:
    """Replaces functions of PyTorch."""

    def __init__(self, torch: ModuleType, functions: _Functions, copies: _HostCopies) -> None:
        self._torch, self._functions, self._copies = torch, functions, copies

    def watch(self) -> None:
        """Replace the functions and methods that write uncounted, or give away an address."""
        torch, tensor, storage = self._torch, self._torch.Tensor, self._torch.UntypedStorage
        groups = [
            name for name in dir(torch._C._VariableFunctions) if name.startswith(_UNCOUNTED_GROUPS)
        ]
        for name in (*_UNCOUNTED.split(), *groups):
            self._functions.replace(name, self._uncounted)
        for name in _SHARED.split():
            self._functions.replace(name, self._shared)
        for kind in (torch._ops.OpOverload, torch._ops.OpOverloadPacket):
            self._functions.set(kind, "__call__", self._operator(kind.__call__))
        for name in _OF_STORAGE.split():
            self._after(storage, name, self._forget)
        self._after(storage, "data_ptr", self._never)
        self._after(tensor, "data_ptr", self._never)
        self._after(tensor, "set_", self._never)
        self._after(tensor, "view", self._viewed)
        for space in (torch, torch._C, torch.utils.dlpack):
            for name in ("to_dlpack", "_to_dlpack", "_to_dlpack_versioned"):
                if hasattr(space, name):
                    self._after(space, name, self._never)
        self._after(torch._C._autograd, "_unsafe_set_version_counter", self._forget_all)
        self._replace_data(tensor)

    def _forget(self, tensor_or_storage: Any, *_others: Any) -> None:
        self._copies.forget(tensor_or_storage)

    def _never(self, tensor_or_storage: Any, *_others: Any) -> None:
        self._copies.never(tensor_or_storage)

    def _forget_all(self, *values: Any) -> None:
        for value in values:
            if isinstance(value, self._torch.Tensor):
                self._copies.forget(value)
            elif type(value) in (list, tuple):
                self._forget_all(*value)

    def _viewed(self, tensor: Any, *shape: Any) -> None:
        """In inference mode, changes of a view as another type are not counted."""
        other_type = bool(shape) and type(shape[0]) is self._torch.dtype
        if other_type and self._torch.is_inference_mode_enabled():
            self._copies.never(tensor)

    def _uncounted(self, _name: str, original: Any) -> Any:
        @self._functions.instead_of(original)
        def forgetting(*arguments: Any, **options: Any) -> Any:
            self._forget_all(*arguments, *options.values())
            return original(*arguments, **options)

        return forgetting

    def _shared(self, _name: str, original: Any) -> Any:
        @self._functions.instead_of(original)
        def made(*arguments: Any, **options: Any) -> Any:
            given = [*arguments, options.get("values")]
            tensors = [value for value in given if isinstance(value, self._torch.Tensor)]
            if tensors:
                self._copies.never(tensors[-1])
            return original(*arguments, **options)

        return made

    def _operator(self, original: Any) -> Any:
        """For operators called as `torch.ops.LIBRARY.NAME`."""

        @functools.wraps(original)
        def called(operator: Any, /, *arguments: Any, **options: Any) -> Any:
            if _may_write(operator):
                self._forget_all(*arguments, *options.values())
            return original(operator, *arguments, **options)

        return called

    def _after(self, space: Any, name: str, told: Callable[..., None]) -> None:
        """Have a function told the arguments of each call of another one."""
        original = getattr(space, name)

        @functools.wraps(original)
        def called(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            told(*arguments)
            return result

        self._functions.set(space, name, called)

    def _replace_data(self, tensor: Any) -> None:
        """What is written through `tensor.data` is not counted as a change of the tensor."""
        own, never = tensor.data, self._copies.never

        def get(value: Any) -> Any:
            never(value)
            return own.__get__(value)

        def set_(value: Any, other: Any) -> None:
            own.__set__(value, other)
            never(value)

        self._functions.set(tensor, "data", property(get, set_, doc=own.__doc__))


@functools.cache
def _may_write(operator: Any) -> bool:
    """Whether an operator may write to an argument without PyTorch counting it."""
    library, _, name = str(getattr(operator, "_qualified_op_name", operator)).partition("::")
    name = name.partition(".")[0]
    if library == "aten":
        return name in _UNCOUNTED.split() or name.startswith(_UNCOUNTED_GROUPS)
    schemas = [operator._schema] if hasattr(operator, "_schema") else operator._schemas.values()
    return any(schema.is_mutable for schema in schemas)
