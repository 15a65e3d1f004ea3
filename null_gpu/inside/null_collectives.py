# SPDX-License-Identifier: Apache-2.0
"""Values that the host knows, and that ranks send each other with collective operations.

On a null GPU, a collective operation gives each rank its own data. Ranks use collectives of a few
numbers to agree on sizes, though. If all ranks know these numbers on the host, each knows the
result as well.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_MOST = 4096
"""Elements of the largest tensors whose values are sent."""
_RECEIVING = {
    "all_to_all": "output_tensor_list",
    "gather": "gather_list",
    "irecv": "tensor",
    "recv": "tensor",
    "reduce_scatter": "output",
    "reduce_scatter_tensor": "output",
    "scatter": "tensor",
}
"""Other functions, and their argument that receives values. PyTorch does not count this change."""


class Collectives:
    """Functions in the place of PyTorch's.

    functions, copies, messages: `Functions`, `HostCopies` and `Messages` of the modules beside this
    one.
    """

    def __init__(self, torch: ModuleType, functions: Any, copies: Any, messages: Any) -> None:
        self._torch, self._dist = torch, torch.distributed
        self._functions, self._copies, self._messages = functions, copies, messages
        operation = self._dist.ReduceOp
        self._reductions: Sequence[tuple[Any, Callable[[Any], Any]]] = (
            (operation.SUM, lambda parts: parts.sum(0)),
            (operation.AVG, lambda parts: parts.sum(0) / len(parts)),
            (operation.MAX, lambda parts: parts.amax(0)),
            (operation.MIN, lambda parts: parts.amin(0)),
            (operation.PRODUCT, lambda parts: parts.prod(0)),
        )

    def watch(self) -> None:
        """Replace PyTorch's functions."""
        self._replace("all_reduce", self._all_reduce)
        self._replace("reduce", self._reduce)
        self._replace("all_gather", self._all_gather)
        for name in ("all_gather_into_tensor", "all_gather_single", "_all_gather_base"):
            self._replace(name, self._all_gather_single)
        self._replace("broadcast", self._broadcast)
        self._replace("all_to_all_single", self._all_to_all_single)
        for name, argument in _RECEIVING.items():
            self._replace(name, functools.partial(self._receive, argument))
        if self._torch.__version__ >= (2, 15):
            self._let_models_be_equal()

    def _let_models_be_equal(self) -> None:
        """Have DDP accept that it cannot compare the parameters of the ranks.

        It sends their numbers and shapes with a collective operation of its own code. From PyTorch
        2.15 on, a kernel copies what arrives.
        """
        verify = self._dist._verify_params_across_processes

        @functools.wraps(verify)
        def verified(*arguments: Any, **options: Any) -> None:
            try:
                verify(*arguments, **options)
            except RuntimeError as error:
                if "expects same model" not in str(error):
                    raise

        self._functions.set(self._dist, "_verify_params_across_processes", verified)

    def _replace(self, name: str, after: Callable[[Any, Any], None]) -> None:
        """Have a function called after another one, with its arguments by name and its group."""
        c10d = self._dist.distributed_c10d
        if (original := getattr(c10d, name, None)) is None:
            return  # another version of PyTorch
        signature = inspect.signature(original)

        @functools.wraps(original)
        def called(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            given = signature.bind(*arguments, **options)
            given.apply_defaults()
            group = given.arguments["group"] or c10d._get_default_group()
            if self._dist.get_rank(group) >= 0:
                after(given.arguments, group)
            return result

        for space in (c10d, self._dist):
            self._functions.set(space, name, called)

    def _all_reduce(self, given: Any, group: Any) -> None:
        tensor = given["tensor"]
        parts = self._parts("all_reduce", tensor, [tensor], group)
        self._know(tensor, self._reduced(parts, given["op"]))

    def _reduce(self, given: Any, group: Any) -> None:
        tensor = given["tensor"]
        parts = self._parts("reduce", tensor, [tensor], group)
        if self._dist.get_rank() == self._messages.peer(given, "dst", group):
            self._know(tensor, self._reduced(parts, given["op"]))

    def _reduced(self, parts: Sequence[Any], operation: Any) -> Any:
        reduce = next((how for what, how in self._reductions if operation == what), None)
        if not parts or reduce is None:
            return None
        return reduce(self._torch.stack([*parts])).to(parts[0].dtype)

    def _all_gather(self, given: Any, group: Any) -> None:
        outputs = given["tensor_list"]
        parts = self._parts("all_gather", given["tensor"], outputs, group)
        for output, part in zip(outputs, parts or [None] * len(outputs), strict=True):
            self._know(output, part)

    def _all_gather_single(self, given: Any, group: Any) -> None:
        output = given["output_tensor"]
        parts = self._parts("all_gather", given["input_tensor"], [output], group)
        self._know(output, self._torch.cat([*parts]) if parts else None)

    def _all_to_all_single(self, given: Any, group: Any) -> None:
        output, whole, values = given["output"], given["input"], None
        if not given["output_split_sizes"] and not given["input_split_sizes"]:
            parts = self._parts("all_to_all", whole, [whole], group)
            rank = self._dist.get_rank(group)
            chunks = [part.reshape(len(parts), -1)[rank] for part in parts]
            values = self._torch.cat(chunks) if parts else None
        self._know(output, values)

    def _broadcast(self, given: Any, group: Any) -> None:
        tensor, source = given["tensor"], self._messages.peer(given, "src", group)
        is_here = self._dist.get_rank() == source
        if self._messages.alone or not self._is_small([tensor]):
            known = is_here or self._messages.alone
            return None if known else self._know(tensor, None)
        sent = self._bytes(tensor) if is_here else None
        (part,) = self._messages.exchange(group, "value of broadcast", sent, [source])
        return None if is_here else self._know(tensor, self._value(part, tensor))

    def _receive(self, argument: str, given: Any, _group: Any) -> None:
        outputs = given[argument]
        for output in outputs if isinstance(outputs, (tuple, list)) else [outputs]:
            self._know(output, None)

    def _parts(self, kind: str, tensor: Any, alike: Sequence[Any], group: Any) -> list[Any]:
        """The values of all ranks, flat; none if they are not known.

        alike: tensors that have the same size on each rank. So all ranks make the same decision.
        """
        if not self._is_small([tensor, *alike]):
            return []
        ranks = self._dist.get_process_group_ranks(group)
        sent = self._bytes(tensor)
        received = self._messages.exchange(group, f"values of {kind}", sent, ranks)
        return [self._value(part, tensor) for part in received] if all(received) else []

    def _is_small(self, tensors: Sequence[Any]) -> bool:
        return all(
            type(tensor) is self._torch.Tensor
            and tensor.is_cuda
            and not tensor.is_complex()
            and 0 < tensor.numel() <= _MOST
            for tensor in tensors
        )

    def _bytes(self, tensor: Any) -> bytes:
        """The values of a tensor on the GPU; empty: not known."""
        if (known := self._copies.get(tensor)) is None:
            return b""
        data: bytes = known.reshape(-1).view(self._torch.uint8).numpy().tobytes()
        return data

    def _value(self, data: bytes, like: Any) -> Any:
        """The tensor of these bytes, or None."""
        return self._torch.frombuffer(bytearray(data), dtype=like.dtype) if data else None

    def _know(self, tensor: Any, values: Any) -> None:
        """Note the values that a tensor has received; None: they are not known."""
        if not isinstance(tensor, self._torch.Tensor):
            return
        known = None if values is None else self._copies.get(tensor)
        if known is not None:
            known.copy_(values.reshape(known.shape))
            self._copies.renew(tensor)
            return
        self._copies.forget(tensor)
        if values is not None and self._copies.may_have(tensor) and self._is_whole(tensor):
            self._copies.keep(tensor, values.reshape(tensor.shape))

    def _is_whole(self, tensor: Any) -> bool:
        """Whether nothing else is in the memory of a tensor."""
        is_whole = tensor.nbytes == tensor.untyped_storage().nbytes()
        return bool(is_whole and tensor.is_contiguous())
