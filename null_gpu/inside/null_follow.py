# SPDX-License-Identifier: Apache-2.0
"""Follows on the host what a program does with small tensors whose values the host can know.

Such values come from the host, or from functions such as `torch.ones`. PyTorch's functions and
methods that `null_names` lists are replaced: if all values of the arguments are known, the host
computes the result as well, and keeps it as a host copy. What the program reads from it is then not
0, and where a shape depends on such values, it is as on a real GPU.

The GPU's work stays the same: each function runs there first as it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Protocol

_NOT_KNOWN = object()


class _UnknownError(Exception):
    """The host does not know a value."""


class _Functions(Protocol):
    """`Functions` of null_functions."""

    def replace(self, name: str, make: Callable[[str, Any], Any]) -> None: ...
    def instead_of(self, original: Any) -> Callable[[Any], Any]: ...


class _Names(Protocol):
    """The module null_names."""

    NEW: str
    LIKE: str
    UNWRITTEN: str
    CONVERTED: str
    COMPUTED: str
    ASSUMED: str
    GROUPED: str
    IN_PLACE: str
    OVERWRITING: Sequence[str]
    REPEATABLE: Sequence[str]
    READ: str
    COUNTED: Sequence[str]


class _HostCopies(Protocol):
    """`HostCopies` of null_host_copies."""

    def is_small(self, tensor: Any) -> bool: ...
    def may_have(self, tensor: Any, **limits: int) -> bool: ...
    def knows(self, tensor: Any) -> bool: ...
    def get(self, tensor: Any) -> Any: ...
    def keep(self, tensor: Any, values: Any) -> None: ...
    def renew(self, tensor: Any) -> None: ...
    def forget(self, tensor: Any) -> None: ...


class _Reads(Protocol):
    """`Reads` of null_reads."""

    def answer(self, numbers: Sequence[int]) -> None: ...
    def answering(self, numbers: Sequence[int] = ()) -> AbstractContextManager[list[int]]: ...


class Follower:
    """Replaces functions of PyTorch."""

    def __init__(
        self,
        torch: ModuleType,
        names: _Names,
        functions: _Functions,
        copies: _HostCopies,
        reads: _Reads,
    ) -> None:
        self._torch, self._names, self._functions, self._copies = torch, names, functions, copies
        self._tensor = torch.Tensor
        self._answer, self._answering = reads.answer, reads.answering
        self._truth = (torch.bool, torch.uint8)

    def follow(self) -> None:
        """Replace the functions and methods that null_names lists."""
        names = self._names
        for listed, replaced in (
            (names.NEW, self._new),
            (names.LIKE, self._like),
            (names.UNWRITTEN, self._assumed),
            (names.CONVERTED, self._converted),
            (names.COMPUTED, self._computed),
            (names.ASSUMED, self._assumed),
            (names.IN_PLACE, self._in_place),
            (names.GROUPED, self._grouped),
        ):
            for name in listed.split():
                self._functions.replace(name, replaced)

    def subscript(self) -> Any:
        """The function for `tensor[index]`."""
        original = self._torch.Tensor.__getitem__
        computed = self._computed("__getitem__", original)

        @self._functions.instead_of(original)
        def selected(tensor: Any, index: Any) -> Any:
            if not self._masks(index):
                return computed(tensor, index)
            with self._answering() as given:
                result = computed(tensor, index)
            if any(given):
                self.answer_backward(result, given)
            return result

        return selected

    def answer_backward(self, result: Any, numbers: Sequence[int]) -> None:
        """The backward pass reads the numbers again, in a thread of its own."""
        if node := result.grad_fn:
            node.register_prehook(lambda _gradients: self._answer(numbers))
            node.register_hook(lambda _inputs, _outputs: self._answer(()))

    def _grouped(self, _name: str, original: Any) -> Any:
        @self._functions.instead_of(original)
        def in_one_group(matrices: Any, *arguments: Any, **options: Any) -> Any:
            if not self._is_gpu(matrices) or not self._is_usual() or matrices.dim() < 3:
                return original(matrices, *arguments, **options)
            numbers = [1, matrices.shape[:-2].numel()]  # groups, matrices in the group
            with self._answering(numbers):
                result = original(matrices, *arguments, **options)
            self.answer_backward(result, numbers)
            return result

        return in_one_group

    def _masks(self, index: Any) -> list[Any]:
        parts = index if type(index) in (tuple, list) else (index,)
        return [part for part in parts if self._is_gpu(part) and part.dtype in self._truth]

    def _computed(self, name: str, original: Any) -> Any:
        reads = name in self._names.COUNTED or name in self._names.READ.split()

        @self._functions.instead_of(original)
        def computed(*arguments: Any, **options: Any) -> Any:
            if not self._reaches_known(arguments) or options.get("out") is not None:
                return original(*arguments, **options)
            on_host = self._on_host(arguments, options)
            values = self._values(original, on_host) if reads else _NOT_KNOWN
            numbers = self._numbers(name, arguments, options, values)
            if on_host is _NOT_KNOWN and not numbers:
                return original(*arguments, **options)
            with self._answering(numbers or [0]):
                result = self.run(original, arguments, options)
            if name == "index_put" and numbers and any(numbers):
                self.answer_backward(result, numbers)
            if not reads and self._fits(result):
                values = self._values(original, on_host)
            return result if values is _NOT_KNOWN else self._settled(result, values)

        return computed

    def _assumed(self, name: str, original: Any) -> Any:
        computes = name in self._names.ASSUMED.split()

        @self._functions.instead_of(original)
        def assumed(*arguments: Any, **options: Any) -> Any:
            result = self.run(original, arguments, options)
            if self.can_keep(result):
                values = self._torch.full(result.shape, name == "isfinite", device="cpu")
                if computes and self._reaches_known(arguments):
                    values = self._values(original, self._on_host(arguments, options))
                self._copies.keep(result, values)
            return result

        return assumed

    def _new(self, name: str, original: Any) -> Any:
        computed = self._computed(name, original)

        @self._functions.instead_of(original)
        def created(*arguments: Any, **options: Any) -> Any:
            result = self.run(computed, arguments, options)
            if self.can_keep(result) and not self._copies.knows(result):
                self._keep(result, original, arguments, options | {"device": "cpu"})
            return result

        return created

    def _like(self, name: str, original: Any) -> Any:
        @self._functions.instead_of(original)
        def created(like: Any, *arguments: Any, **options: Any) -> Any:
            result = self.run(original, (like, *arguments), options)
            if self.can_keep(result):
                shape = like.shape if name.endswith("_like") else ()
                empty = self._torch.empty(shape, dtype=like.dtype, device="cpu")
                self._keep(result, original, (empty, *arguments), options | {"device": "cpu"})
            return result

        return created

    def _converted(self, _name: str, original: Any) -> Any:
        @self._functions.instead_of(original)
        def converted(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if not self._is_gpu(tensor):
                result = self.run(original, (tensor, *arguments), options)
                if self.can_keep(result) and self._copies.is_small(tensor):
                    self._copies.keep(result, tensor.detach())
                return result
            if (values := self.host_copy(tensor)) is None:
                return original(tensor, *arguments, **options)
            with self._answering([0]):
                result = self.run(original, (tensor, *arguments), options)
            return self._settled(result, values)

        return converted

    def _in_place(self, name: str, original: Any) -> Any:
        @self._functions.instead_of(original)
        def changed(tensor: Any, *arguments: Any, **options: Any) -> Any:
            on_gpu, reaches = self._is_gpu(tensor), self._reaches_known(arguments)
            former = self.host_copy(tensor) if on_gpu else None
            is_new = former is None and name in self._names.OVERWRITING and self.is_whole(tensor)
            if former is None and not reaches and not is_new:
                return original(tensor, *arguments, **options)
            on_host = self._on_host(arguments, options)  # while the arguments are as they were
            again = not on_gpu and on_host is not _NOT_KNOWN and name in self._names.REPEATABLE
            numbers = None
            if reaches and (again or on_gpu):
                numbers = self._numbers(name, (tensor, *arguments), options, _NOT_KNOWN)
                if on_host is not _NOT_KNOWN:
                    numbers = numbers or [0]
            with self._answering(numbers) if numbers else nullcontext():
                result = original(tensor, *arguments, **options)
            if numbers and any(numbers):
                changed_in = tensor if tensor._base is None else tensor._base
                self.answer_backward(changed_in, numbers)
            if again:
                self._values(original, on_host, tensor.detach())
            elif former is not None:
                if self._values(original, on_host, former) is _NOT_KNOWN:
                    self._copies.forget(tensor)
                else:
                    self._copies.renew(tensor)
            elif is_new:
                empty = self._torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                if self._values(original, on_host, empty) is not _NOT_KNOWN:
                    self._copies.keep(tensor, empty)
            return result

        return changed

    def run(self, original: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Call a function; its result is a tensor whose changes PyTorch counts."""
        if not self._torch.is_inference_mode_enabled():
            return original(*arguments, **options)
        with self._torch.inference_mode(False), self._torch.no_grad():
            return original(*arguments, **options)

    def _is_gpu(self, value: Any) -> bool:
        return isinstance(value, self._tensor) and bool(value.is_cuda)

    def can_keep(self, result: Any, **limits: int) -> bool:
        """Whether the result of a function can have a host copy. limits: of `may_have`."""
        return self._is_gpu(result) and self._copies.may_have(result, **limits) and self._is_usual()

    def _fits(self, result: Any) -> bool:
        """Whether all results of a function can have host copies."""
        parts = result if isinstance(result, (tuple, list)) else (result,)
        return all(map(self.can_keep, parts))

    def is_whole(self, tensor: Any) -> bool:
        """Whether a tensor can have a host copy, and nothing else is in its memory."""
        if not self.can_keep(tensor) or not tensor.is_contiguous():
            return False
        return bool(tensor.nbytes == tensor.untyped_storage().nbytes())

    def _is_usual(self) -> bool:
        """Whether functions run at once, on tensors with memory of their own."""
        native = self._torch._C
        return not (
            native._len_torch_dispatch_stack()
            or native._functorch.peek_interpreter_stack()
            or native._get_tracing_state()
            or self._torch.cuda.is_current_stream_capturing()
        )

    def host_copy(self, tensor: Any) -> Any:
        """The host copy of a tensor on the GPU, or None."""
        return self._copies.get(tensor) if self._is_usual() else None

    def _reaches_known(self, arguments: Iterable[Any]) -> bool:
        """Whether one of the arguments, or an element of a list, has a host copy."""
        for value in arguments:
            if isinstance(value, self._tensor):
                if value.is_cuda and self._copies.knows(value) and self._is_usual():
                    return True
            elif type(value) in (list, tuple) and self._reaches_known(value):
                return True
        return False

    def _known(self, value: Any) -> Any:
        """The value with host copies in the place of tensors; raises _UnknownError."""
        if isinstance(value, self._tensor):
            if value.is_cuda and (known := self.host_copy(value)) is not None:
                return known
            if value.is_cuda or not self._copies.is_small(value):
                raise _UnknownError
            return value.detach()
        if type(value) in (list, tuple):
            return type(value)(map(self._known, value))
        return value

    def _on_host(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """The same arguments and options for the host, or _NOT_KNOWN."""
        try:
            known = {name: self._known(value) for name, value in options.items()}
            if "device" in known:
                known["device"] = "cpu"
            return list(map(self._known, arguments)), known
        except _UnknownError:
            return _NOT_KNOWN

    def on_host(self, original: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """What the function returns on the host if it knows the arguments; None: not known."""
        values = self._values(original, self._on_host(arguments, options))
        return None if values is _NOT_KNOWN else values

    def _values(self, original: Any, on_host: Any, *first: Any) -> Any:
        """What the function returns on the host, or _NOT_KNOWN. first: more arguments."""
        if on_host is _NOT_KNOWN:
            return _NOT_KNOWN
        arguments, options = on_host
        try:
            return original(*first, *arguments, **options)
        except Exception:  # a function that the host cannot compute
            return _NOT_KNOWN

    def _keep(
        self, result: Any, original: Any, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        values = self._values(original, self._on_host(arguments, options))
        if values is not _NOT_KNOWN:
            self._copies.keep(result, values)

    def _settled(self, result: Any, values: Any) -> Any:
        """The result of a function whose values are known, with them."""
        if isinstance(values, self._tensor):
            self._settle([result], [values])
            return result
        if isinstance(values, (tuple, list)) and any(map(self._is_gpu, result)):
            self._settle(result, values)
            return result
        return values.copy() if hasattr(values, "copy") else values  # numpy() shares memory

    def _settle(self, results: Sequence[Any], values: Sequence[Any]) -> None:
        """Give tensors their values. They may share memory, as those of `torch.where` do."""
        known = [self._is_gpu(result) and self._copies.knows(result) for result in results]
        for result, value, is_known in zip(results, values, known, strict=True):
            if not self._is_gpu(result):
                result.copy_(value)
            elif self._copies.may_have(result) and not is_known:
                self._copies.keep(result, value)

    def _numbers(
        self, name: str, arguments: Sequence[Any], options: Mapping[str, Any], values: Any
    ) -> list[int] | None:
        """What a function reads in order to determine the shape of its result; None: not known."""
        try:
            if name in ("__getitem__", "__setitem__", "index_put", "index_put_"):
                return [int(self._known(m).count_nonzero()) for m in self._masks(arguments[1])]
            if name == "masked_select":
                mask = self._known(arguments[1])
                whole = self._torch.broadcast_shapes(mask.shape, arguments[0].shape)
                return [int(mask.expand(whole).count_nonzero())]
            if name == "repeat_interleave":
                return [self._repeated(*arguments, **options)]
            if name == "bincount":
                return list(map(int, self._known(arguments[0]).aminmax()))
            if name == "one_hot":
                return [int(self._known(arguments[0]).max())]
        except Exception:  # not known, or the function fails as well
            return None
        if values is _NOT_KNOWN or name not in self._names.COUNTED:
            return None
        first = values[0] if isinstance(values, tuple) and values else values
        return [first.shape[arguments[1]] if name == "unique_dim" else len(first)]

    def _repeated(
        self, whole: Any, repeats: Any = None, dim: int | None = None, **_options: Any
    ) -> int:
        """The size of the result of `repeat_interleave`."""
        counts = self._known(whole if repeats is None else repeats)
        total = int(counts.sum())
        if repeats is None or counts.numel() > 1:
            return total
        return total * int(whole.numel() if dim is None else whole.shape[dim])
