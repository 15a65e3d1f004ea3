# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a distributed program send each other on null GPUs: small values and objects.

On a null GPU, a collective operation gives each rank its own data, and what arrives cannot be read.
Ranks use collectives of a few numbers to agree on sizes, though. If all ranks know these numbers on
the host, each knows the result as well. PyTorch pickles objects into tensors on the GPU if a group
has no other backend than NCCL. The bytes of both go through the store of the process group. One
rank can also run without the others: nothing waits for them.
"""

from __future__ import annotations

import functools
import inspect
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Any

from .following import Finish, Follower, HostCopies, Operator


class Messages:
    """The messages of one rank. alone: the other ranks do not run."""

    def __init__(self, torch: ModuleType, alone: bool) -> None:
        self.alone = alone
        self._dist, self._c10d = torch.distributed, torch.distributed.distributed_c10d
        self._sent = Counter[str]()

    def exchange(
        self, group: Any, kind: str, sent: bytes | None, sources: Iterable[int]
    ) -> list[bytes]:
        """Send bytes, unless None, and return what these global ranks send with the same call.

        A rank that does not run sends what this rank sends, or else nothing.
        """
        if self.alone:
            return [sent or b"" for _ in sources]
        here, store = self._dist.get_rank(), self._c10d._get_default_store()
        message = self.key(group, kind)
        if sent is not None:
            store.set(f"{message}/{here}", sent)
        return [store.get(f"{message}/{source}") for source in sources]

    def key(self, group: Any, kind: str) -> str:
        """The name of the next message of a kind in the store."""
        kind = f"allocbench/{group.group_name}/{kind}"
        self._sent[kind] += 1
        return f"{kind}/{self._sent[kind]}"

    def arrived(self, key: str) -> bytes:
        """What another rank has sent; empty if nothing comes soon."""
        store = self._c10d._get_default_store()
        try:
            store.wait([key], _SOON)
        except RuntimeError:
            return b""
        return bytes(store.get(key))

    def peer(self, given: Any, name: str, group: Any) -> int:
        """The global rank that a call names, by that rank or by its rank in the group."""
        if given.get(f"group_{name}") is not None:
            return int(self._dist.get_global_rank(group, given[f"group_{name}"]))
        return int(given[name] or 0)


_MOST = 4096
"""Elements of the largest tensors whose values are sent."""
_SOON = timedelta(seconds=10)
"""How long a rank waits for integers that another rank sends."""
_CALLER = "torch.distributed.distributed_c10d"
_OPERATORS = """
_allgather_base_ _reduce_scatter_base_ allgather_ allgather_coalesced_
allgather_into_tensor_coalesced_ allreduce_ allreduce_coalesced_ alltoall_ alltoall_base_ broadcast_
gather_ recv_ recv_any_source_ reduce_ reduce_scatter_ reduce_scatter_tensor_coalesced_ scatter_
send
"""
"""Of the library c10d. Which values they move, the function of Python says that calls them."""


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
            "send": ("tensor", self._send),
            "isend": ("tensor", self._send),
            "recv": ("tensor", self._receive),
            "irecv": ("tensor", self._receive),
        }
        self._expected = list[tuple[str, Any]]()  # by key, the tensors that integers come for

    def follow(self) -> None:
        """Have the follower ask for collective operations."""
        self._follower.special(_OPERATORS, self._begin, "c10d")
        wait = self._dist.Work.wait

        @functools.wraps(wait)
        def waited(work: Any, *arguments: Any, **options: Any) -> Any:
            done = wait(work, *arguments, **options)
            while self._expected:
                key, tensor = self._expected.pop(0)
                self._know(tensor, self._value(self._messages.arrived(key), tensor))
            return done

        self._dist.Work.wait = waited
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

    def _send(self, given: Any, group: Any, sent: bytes) -> None:
        if self._is_message(given["tensor"]):
            kind = f"{self._dist.get_rank()} to {self._messages.peer(given, 'dst', group)}"
            self._messages.exchange(group, f"value {kind}", sent, [])

    def _receive(self, given: Any, group: Any, _sent: bytes) -> None:
        """Expect integers from a rank; they are there when the program waits for them."""
        tensor = given["tensor"]
        self._know(tensor, None)
        named = given.get("src") is not None or given.get("group_src") is not None
        if named and self._is_message(tensor):
            source = self._messages.peer(given, "src", group)
            key = self._messages.key(group, f"value {source} to {self._dist.get_rank()}")
            self._expected.append((f"{key}/{source}", tensor))

    def _is_message(self, tensor: Any) -> bool:
        """Whether a tensor that goes to one rank may be sizes or flags."""
        is_small = not self._messages.alone and self._is_small([tensor])
        return is_small and not tensor.is_floating_point()

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


_Given = Mapping[str, Any]  # the arguments of a call by name
_OF_OBJECTS = """
all_gather_object gather_object broadcast_object_list scatter_object_list send_object_list
recv_object_list
"""


class Objects:
    """Functions in the place of PyTorch's."""

    def __init__(self, torch: ModuleType, messages: Messages) -> None:
        self._torch, self._messages = torch, messages
        self._dist, self._c10d = torch.distributed, torch.distributed.distributed_c10d
        self._warned = set[str]()

    def watch(self) -> None:
        """Replace PyTorch's functions."""
        for name in _OF_OBJECTS.split():
            called = self._instead_of(getattr(self._dist, name), getattr(self, name))
            replace_in(self._dist.__name__, name, called)

    def all_gather_object(self, given: _Given, group: Any) -> None:
        """Each rank gets the objects of all ranks."""
        self._gather(given["obj"], given["object_list"], group, "all_gather", gathers=True)

    def gather_object(self, given: _Given, group: Any) -> None:
        """One rank gets the objects of all ranks."""
        gathers = self._dist.get_rank() == self._messages.peer(given, "dst", group)
        self._gather(given["obj"], given["object_gather_list"], group, "gather", gathers=gathers)

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

    def _gather(self, sent: Any, into: Any, group: Any, kind: str, *, gathers: bool) -> None:
        ranks = self._dist.get_process_group_ranks(group) if gathers else [self._dist.get_rank()]
        parts = self._exchange(group, kind, self._pickled(sent), ranks)
        largest = max(map(len, parts))
        self._allocate(largest, 8 * len(parts), largest * len(parts))
        if gathers:
            into[: len(ranks)] = map(self._unpickled, parts)

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


_UNIQUE_ID = b"\1" * 128  # what rank 0 would have stored there for NCCL


def launch_alone(launcher: ModuleType) -> None:
    """Have a launcher, such as torchrun, start a single worker, for the rank that runs."""
    configuration = launcher.LaunchConfig
    finish = configuration.__post_init__

    def alone(self: Any) -> None:
        self.min_nodes = self.max_nodes = self.nproc_per_node = 1
        self.rdzv_backend, self.rdzv_endpoint = "c10d", "localhost:0"
        finish(self)

    configuration.__post_init__ = alone


def be_alone(torch: ModuleType) -> None:
    """Have `init_process_group` start this rank at once; the null GPU answers its collectives.

    Collectives on the CPU have no effect.
    """
    dist = torch.distributed
    original = dist.init_process_group
    stores = list[Any]()  # PyTorch itself does not keep what is written in Python

    class Store(dist.Store):  # type: ignore[name-defined,misc]
        """A store that already has what the other ranks would have written."""

        def __init__(self) -> None:
            super().__init__()
            self._values: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self._values[key] = value if isinstance(value, bytes) else str(value).encode()

        def get(self, key: str) -> bytes:
            return self._values.get(key, _UNIQUE_ID)

        def add(self, key: str, amount: int) -> int:
            count = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(count).encode()
            return count

        def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
            self.set(key, desired)
            return self._values[key]

        def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
            """Nothing to wait for."""

        def check(self, keys: list[str]) -> bool:
            return all(key in self._values for key in keys)

        def delete_key(self, key: str) -> bool:
            return self._values.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self._values)

    def init_process_group(backend: str | None = None, *args: Any, **options: Any) -> Any:
        import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend
        for name in ("init_method", "store", "rank", "world_size"):
            options.pop(name, None)
        stores.append(Store())
        return original(
            "cpu:fake,cuda:nccl",
            store=stores[-1],
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            **options,
        )

    replace_in(dist.__name__, "init_process_group", init_process_group)
