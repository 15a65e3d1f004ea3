# SPDX-License-Identifier: Apache-2.0
"""Objects that the ranks of a distributed program send each other.

PyTorch pickles them into tensors on the GPU if a group has no other backend than NCCL. What arrives
there on a null GPU cannot be read, so the bytes go through the store of the process group instead.
Tensors of the same sizes are allocated on the GPU.
"""

from __future__ import annotations

import functools
import inspect
import io
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from .messages import Messages

_Given = Mapping[str, Any]  # the arguments of a call by name


class Objects:
    """Functions in the place of PyTorch's."""

    def __init__(self, torch: ModuleType, messages: Messages) -> None:
        self._torch, self._messages = torch, messages
        self._dist, self._c10d = torch.distributed, torch.distributed.distributed_c10d
        self._warned = set[str]()

    def watch(self) -> None:
        """Replace PyTorch's functions."""
        for function in (
            self.all_gather_object,
            self.gather_object,
            self.broadcast_object_list,
            self.scatter_object_list,
            self.send_object_list,
            self.recv_object_list,
        ):
            original = getattr(self._dist, function.__name__)
            called = self._instead_of(original, function)
            replace_in(self._dist.__name__, function.__name__, called)

    def all_gather_object(self, given: _Given, group: Any) -> None:
        """Each rank gets the objects of all ranks."""
        ranks = self._dist.get_process_group_ranks(group)
        parts = self._exchange(group, "all_gather", self._pickled(given["obj"]), ranks)
        self._gathered(parts)
        given["object_list"][: len(ranks)] = map(self._unpickled, parts)

    def gather_object(self, given: _Given, group: Any) -> None:
        """One rank gets the objects of all ranks."""
        here, ranks = self._dist.get_rank(), self._dist.get_process_group_ranks(group)
        gathers = here == self._messages.peer(given, "dst", group)
        sent = self._pickled(given["obj"])
        parts = self._exchange(group, "gather", sent, ranks if gathers else [here])
        self._gathered(parts)
        if gathers:
            given["object_gather_list"][: len(ranks)] = map(self._unpickled, parts)

    def broadcast_object_list(self, given: _Given, group: Any) -> None:
        """All ranks get the objects of one rank."""
        objects, source = given["object_list"], self._messages.peer(given, "src", group)
        sent = self._pickled(objects) if self._dist.get_rank() == source else None
        (part,) = self._exchange(group, "broadcast", sent, [source])
        self._allocate(8 * len(objects), len(part))
        if part and sent is None:
            objects[:] = self._unpickled(part)

    def scatter_object_list(self, given: _Given, group: Any) -> None:
        """Each rank gets one of the objects of one rank."""
        source, sent = self._messages.peer(given, "src", group), None
        if self._dist.get_rank() == source:
            sent = self._pickled(given["scatter_object_input_list"])
        (part,) = self._exchange(group, "scatter", sent, [source])
        self._allocate(len(part), 8)
        if part:
            objects = self._unpickled(part)
            given["scatter_object_output_list"][0] = objects[self._dist.get_rank(group)]

    def send_object_list(self, given: _Given, group: Any) -> None:
        """Send objects to one rank."""
        here, objects = self._dist.get_rank(), given["object_list"]
        kind = f"{here} to {self._messages.peer(given, 'dst', group)}"
        (part,) = self._exchange(group, kind, self._pickled(objects), [here])
        self._allocate(8 * len(objects), len(part))

    def recv_object_list(self, given: _Given, group: Any) -> int:
        """Receive objects from one rank, and return this rank."""
        here, objects = self._dist.get_rank(), given["object_list"]
        source = self._messages.peer(given, "src", group)
        (part,) = self._exchange(group, f"{source} to {here}", None, [source])
        self._allocate(8 * len(objects), len(part))
        if part:
            objects[:] = self._unpickled(part)
        return source

    def _instead_of(self, original: Any, function: Callable[[_Given, Any], Any]) -> Any:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def called(*arguments: Any, **options: Any) -> Any:
            given = signature.bind(*arguments, **options)
            given.apply_defaults()
            group = given.arguments["group"] or self._c10d._get_default_group()
            is_member = self._dist.get_rank(group) >= 0
            if is_member and self._is_on_gpu(given.arguments.get("device"), group):
                return function(given.arguments, group)
            return original(*arguments, **options)

        return called

    def _is_on_gpu(self, device: Any, group: Any) -> bool:
        if self._messages.alone:
            return True
        if device is None:
            named = ("_get_object_coll_device", "_get_pg_default_device")  # the latter: PyTorch 2.5
            device = next(getattr(self._c10d, name) for name in named if hasattr(self._c10d, name))(
                group
            )
        return bool(self._torch.device(device).type == "cuda")

    def _exchange(
        self, group: Any, kind: str, sent: bytes | None, sources: Iterable[int]
    ) -> list[bytes]:
        """Send bytes, unless None, and return what these global ranks send with the same call.

        An empty part is from a rank that does not run.
        """
        sources = [*sources]
        if self._messages.alone and sent is None and kind not in self._warned:
            self._warned.add(kind)
            print(
                f"allocbench: warning: rank {self._dist.get_rank()} keeps its own object where it"
                f" expects one from rank {sources[0]}, which does not run",
                file=sys.stderr,
                flush=True,
            )
        return self._messages.exchange(group, kind, sent, sources)

    def _gathered(self, parts: list[bytes]) -> None:
        largest = max(map(len, parts))
        self._allocate(largest, 8 * len(parts), largest * len(parts))

    def _allocate(self, *sizes: int) -> None:
        """Tensors of these bytes, all at once, as PyTorch has for a moment."""
        empty, byte = self._torch.empty, self._torch.uint8
        _ = [empty(size, dtype=byte, device="cuda") for size in sizes]

    def _pickled(self, value: Any) -> bytes:
        stream = io.BytesIO()
        self._c10d._pickler(stream).dump(value)
        return stream.getvalue()

    def _unpickled(self, data: bytes) -> Any:
        return self._c10d._unpickler(io.BytesIO(data)).load()


def replace_in(package: str, name: str, function: Any) -> None:
    """Replace what `package` has under this name, also in its modules that have imported it."""
    original = getattr(sys.modules[package], name)
    for module in tuple(sys.modules.values()):
        found = getattr(module, "__dict__", {}).get(name)
        if found is original and module.__name__.startswith(package):
            setattr(module, name, function)
