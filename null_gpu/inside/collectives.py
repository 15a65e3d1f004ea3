# SPDX-License-Identifier: Apache-2.0
"""Values that the host knows, and that ranks send each other with collective operations.

On a null GPU, a collective operation gives each rank its own data. Ranks use collectives of a few
numbers to agree on sizes, though. If all ranks know these numbers on the host, each knows the
result as well.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from .following import Finish, Follower, Operator
from .host_copies import HostCopies
from .messages import Messages

_MOST = 4096
"""Elements of the largest tensors whose values are sent."""
_CALLER = "torch.distributed.distributed_c10d"
_OPERATORS = """
_allgather_base_ _reduce_scatter_base_ allgather_ allgather_coalesced_
allgather_into_tensor_coalesced_ allreduce_ allreduce_coalesced_ alltoall_ alltoall_base_ broadcast_
gather_ recv_ recv_any_source_ reduce_ reduce_scatter_ reduce_scatter_tensor_coalesced_ scatter_
"""
"""Of the library c10d. They receive values. Which, the function of Python says that calls them."""


def _as_it_is(_results: list[Any]) -> None:
    """What a rank has stays known."""


class Collectives:
    """The collective operations of a process."""

    def __init__(
        self, torch: ModuleType, follower: Follower, copies: HostCopies, messages: Messages
    ) -> None:
        self._torch, self._dist = torch, torch.distributed
        self._follower, self._copies, self._messages = follower, copies, messages
        operation = self._dist.ReduceOp
        self._reductions: Sequence[tuple[Any, Callable[[Any], Any]]] = (
            (operation.SUM, lambda parts: parts.sum(0)),
            (operation.AVG, lambda parts: parts.sum(0) / len(parts)),
            (operation.MAX, lambda parts: parts.amax(0)),
            (operation.MIN, lambda parts: parts.amin(0)),
            (operation.PRODUCT, lambda parts: parts.prod(0)),
        )
        # By function of Python: the argument that is sent, and what is known afterwards.
        self._calls: Mapping[str, tuple[str, Callable[[Any, Any, bytes], None]]] = {
            "all_reduce": ("tensor", self._all_reduce),
            "reduce": ("tensor", self._reduce),
            "all_gather": ("tensor", self._all_gather),
            "all_gather_into_tensor": ("input_tensor", self._all_gather_single),
            "all_gather_single": ("input_tensor", self._all_gather_single),
            "_all_gather_base": ("input_tensor", self._all_gather_single),
            "broadcast": ("tensor", self._broadcast),
            "all_to_all_single": ("input", self._all_to_all_single),
        }

    def follow(self) -> None:
        """Have the follower ask for collective operations."""
        self._follower.special(_OPERATORS, self._begin, "c10d")
        if self._torch.__version__ >= (2, 15):
            self._let_models_be_equal()

    def _begin(self, operator: Operator, _values: list[Any]) -> Finish | None:
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_globals.get("__name__") != _CALLER:
            frame = frame.f_back
        if frame.f_globals.get("__name__") != _CALLER:
            return _as_it_is  # of PyTorch's own code, such as DDP's, whose ranks are equal
        call = self._calls.get(frame.f_code.co_name)
        if call is None:
            return None
        given = dict(frame.f_locals)
        name, after = call
        sent = self._bytes(given[name])
        group = given["group"] or self._dist.distributed_c10d._get_default_group()

        def finish(_results: list[Any]) -> None:
            after(given, group, sent)

        return finish

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

        self._dist._verify_params_across_processes = verified

    def _all_reduce(self, given: Any, group: Any, sent: bytes) -> None:
        tensor = given["tensor"]
        parts = self._parts("all_reduce", tensor, [tensor], group, sent)
        self._know(tensor, self._reduced(parts, given["op"]))

    def _reduce(self, given: Any, group: Any, sent: bytes) -> None:
        tensor = given["tensor"]
        parts = self._parts("reduce", tensor, [tensor], group, sent)
        if self._dist.get_rank() == self._messages.peer(given, "dst", group):
            self._know(tensor, self._reduced(parts, given["op"]))

    def _reduced(self, parts: Sequence[Any], operation: Any) -> Any:
        reduce = next((how for what, how in self._reductions if operation == what), None)
        if not parts or reduce is None:
            return None
        return reduce(self._torch.stack([*parts])).to(parts[0].dtype)

    def _all_gather(self, given: Any, group: Any, sent: bytes) -> None:
        outputs = given["tensor_list"]
        parts = self._parts("all_gather", given["tensor"], outputs, group, sent)
        for output, part in zip(outputs, parts or [None] * len(outputs), strict=True):
            self._know(output, part)

    def _all_gather_single(self, given: Any, group: Any, sent: bytes) -> None:
        output = given["output_tensor"]
        parts = self._parts("all_gather", given["input_tensor"], [output], group, sent)
        self._know(output, self._torch.cat([*parts]) if parts else None)

    def _all_to_all_single(self, given: Any, group: Any, sent: bytes) -> None:
        output, whole, values = given["output"], given["input"], None
        if not given["output_split_sizes"] and not given["input_split_sizes"]:
            parts = self._parts("all_to_all", whole, [whole], group, sent)
            rank = self._dist.get_rank(group)
            chunks = [part.reshape(len(parts), -1)[rank] for part in parts]
            values = self._torch.cat(chunks) if parts else None
        self._know(output, values)

    def _broadcast(self, given: Any, group: Any, sent: bytes) -> None:
        tensor, source = given["tensor"], self._messages.peer(given, "src", group)
        is_here = self._dist.get_rank() == source
        if self._messages.alone or not self._is_small([tensor]):
            known = is_here or self._messages.alone
            return None if known else self._know(tensor, None)
        given_away = sent if is_here else None
        (part,) = self._messages.exchange(group, "value of broadcast", given_away, [source])
        return None if is_here else self._know(tensor, self._value(part, tensor))

    def _parts(
        self, kind: str, tensor: Any, alike: Sequence[Any], group: Any, sent: bytes
    ) -> list[Any]:
        """The values of all ranks, flat; none if they are not known.

        alike: tensors that have the same size on each rank. So all ranks make the same decision.
        sent: the values of this rank; empty: not known.
        """
        if not self._is_small([tensor, *alike]):
            return []
        ranks = self._dist.get_process_group_ranks(group)
        received = self._messages.exchange(group, f"values of {kind}", sent, ranks)
        return [self._value(part, tensor) for part in received] if all(received) else []

    def _is_small(self, tensors: Sequence[Any]) -> bool:
        return all(
            isinstance(tensor, self._torch.Tensor)
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
        if values is None or not self._copies.may_have(tensor):
            self._copies.forget(tensor)
        else:
            self._copies.keep(tensor, values.reshape(tensor.shape))
