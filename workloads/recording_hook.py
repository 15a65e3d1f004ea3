# SPDX-License-Identifier: Apache-2.0
"""The hook of `allocbench record`: has PyTorch keep the history of its allocator.

Errors are written to a file and never reach the program. In the environment, ALLOCBENCH_RECORD is
the folder for snapshots, ALLOCBENCH_STACKS is empty, "python" or "all", ALLOCBENCH_LAST is the
number of newest events to keep, or empty for all, and ALLOCBENCH_STEPS the number of optimizer
steps after which the process ends, or empty for no limit. Only the standard library may be used.
"""

from __future__ import annotations

import atexit
import inspect
import itertools
import json
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

OPTIMIZER_STEP = "allocbench.optimizer_step"
"""Annotates the end of an optimizer's step; see `marks_of` in importers/labels.py."""


POOL_EVENT = "allocbench.pool"
"""Begins the annotation of an event of a private pool."""
POOL_SEGMENTS = "segments"
"""The event that a pool may be released; see `PrivatePools._tell_segments`."""
UNKNOWN_POOL = (0, 0)


def annotation(event: str, pool: Sequence[int], *traits: str) -> str:
    """The annotation of an event of a private pool, such as capture_begin.

    traits: of a MemPool, use_on_oom or no_split; of a capture, its name, because its pool is still
    unknown (UNKNOWN_POOL) when it begins; of POOL_SEGMENTS, the segments.
    """
    return " ".join((POOL_EVENT, event, ".".join(map(str, pool)), *traits))


_POOL_OF_DRIVER = (
    "its setting backend:cudaMallocAsync hands each request to the driver, and PyTorch records none"
    " of them; without the setting it makes the same requests, which cuda_async replays"
)


write_at_end = list[Callable[[], None]]()
"""What a process must call that ends without Python's `atexit`."""
stopped = False
"""Whether allocbench ended this process before it would have ended."""


class HistoryRecorder:
    """The recording of one process, from PyTorch's first use of a GPU to the process's end."""

    def __init__(self, torch: Any, folder: Path) -> None:
        self._torch, self._process = torch, os.getpid()
        self._written = self._writing = self._terminated = False
        self._lock = threading.Lock()
        self._path = folder / f"{time.time_ns()}-{self._process}.pickle"

    def start(self) -> None:
        """Make PyTorch keep the history of its allocator; called when CUDA has been initialized."""
        stacks, last = os.environ.get("ALLOCBENCH_STACKS"), os.environ.get("ALLOCBENCH_LAST")
        try:
            self._torch.cuda.memory._record_memory_history(
                context="alloc" if stacks else None,
                stacks=stacks or "python",
                max_entries=int(last) if last else sys.maxsize,
            )
        except Exception as error:
            self.complain(_POOL_OF_DRIVER if "cudaMallocAsync" in str(error) else error)
            return
        # A program that records its own history must not end or shorten this one; its snapshots
        # have all events since the start.
        self._torch.cuda.memory._record_memory_history = lambda *args, **options: None
        from multiprocessing import parent_process, util  # only now: most processes need neither

        write_at_end.append(self.write)
        atexit.register(self.write)
        util.Finalize(self, self.write, exitpriority=0)  # forked workers end without atexit
        if parent_process() is not None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            with suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, *_arguments: object) -> None:
        """Write, and then end as without this method: a pool of processes ends its workers so."""
        self._terminated = True
        if not self._writing:
            self.write()
            self._end_if_terminated()

    def _end_if_terminated(self) -> None:
        if self._terminated:
            with suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)

    def write(self) -> None:
        """Write a snapshot and a description of this process to the folder, once."""
        if os.getpid() != self._process:
            return
        with self._lock:  # another thread may be writing
            if not self._written:
                self._written = True
                self._write()

    def _write(self) -> None:
        self._writing = True
        try:
            torch, temporary = self._torch, self._path.with_suffix(".tmp")
            snapshot = torch.cuda.memory._snapshot()
            modules = sys.modules.get("allocbench_module_hook")
            if modules is not None:
                snapshot["allocbench_tensors"] = modules.told()
            with temporary.open("wb") as file:
                pickle.dump(snapshot, file)
            used = [
                device
                for device, events in enumerate(snapshot["device_traces"])
                if any(event["action"] == "alloc" for event in events)
            ]
            about = {
                "command": sys.argv,
                "rank": os.environ.get("RANK", ""),
                "world": os.environ.get("WORLD_SIZE", ""),
                "torch": torch.__version__,
                "devices": {device: torch.cuda.get_device_name(device) for device in used},
                "files": [sys.executable, *_mapped()],
                "features": _features(),
                "stopped": stopped,
                "shapes": {} if modules is None else modules.shapes(),
                "parameters": {} if modules is None else modules.parameters(),
                "reserved": {one: torch.cuda.max_memory_reserved(one) for one in used},
                "operators": _overloads(torch),
            }
            self._path.with_suffix(".json").write_text(json.dumps(about))
            temporary.replace(self._path)
        except Exception as error:
            self.complain(error)
        self._writing = False
        self._end_if_terminated()

    def complain(self, why: Exception | str) -> None:
        """Write down what went wrong."""
        text = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        self._path.with_suffix(".error").write_text(text)


class StepMarks:
    """Annotates each optimizer step in the allocator's history, and ends the process after some.

    Only the first optimizer that steps counts: a step of a program often has one of each optimizer.
    """

    def __init__(self, torch: Any, limit: int | None) -> None:
        self._torch, self._limit, self._seen = torch, limit, 0
        self._first: int | None = None
        # The package torch.optim does not keep this module as an attribute.
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._on_step)

    def _on_step(self, optimizer: Any, *_arguments: object) -> None:
        if self._first is None:
            self._first = id(optimizer)
        if self._first != id(optimizer):
            return
        self._seen += 1
        with self._torch.autograd.profiler.record_function(OPTIMIZER_STEP):
            pass
        if self._seen == self._limit:
            global stopped
            stopped = True
            raise SystemExit(0)


class PrivatePools:
    """Annotates the events of captured graphs and MemPools in the allocator's history."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._ends: weakref.WeakKeyDictionary[Any, weakref.finalize[..., Any]] = (
            weakref.WeakKeyDictionary()
        )
        self._captures: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._owners = Counter[tuple[int, ...]]()
        self._numbers = itertools.count()
        graph = torch.cuda.CUDAGraph
        _wrap(graph, "capture_begin", after=self._begun)
        _wrap(graph, "capture_end", after=self._captured)
        _wrap(graph, "reset", before=self._reset)
        memory = torch.cuda.memory
        if hasattr(memory, "MemPool"):
            _wrap(memory.MemPool, "__init__", after=self._made)
        # torch.cuda.memory has imported these functions by name.
        for owner in (torch._C, memory):
            for begin in ("CurrentThread", ""):
                name = f"_cuda_beginAllocate{begin}ToPool"
                _wrap(owner, name, after=lambda _d, pool, *_a: self._tell("pool_enter", pool))
            leave = "_cuda_endAllocateToPool"
            _wrap(owner, leave, before=lambda _d, pool: self._tell("pool_leave", pool))
            release = "_cuda_releasePool"
            _wrap(owner, release, before=lambda _d, pool: self._released(pool))

    def _tell(self, event: str, pool: Sequence[int], *traits: str) -> None:
        with (
            suppress(Exception),
            self._torch.autograd.profiler.record_function(annotation(event, pool, *traits)),
        ):
            pass

    def _begun(self, graph: Any, *_arguments: Any, **_options: Any) -> None:
        """The pool of a graph is known only after its capture; until then, a name stands for it."""
        self._captures[graph] = f"capture{next(self._numbers)}"
        self._tell("capture_begin", UNKNOWN_POOL, self._captures[graph])

    def _captured(self, graph: Any) -> None:
        self._tell("capture_end", graph.pool(), self._captures.pop(graph))
        self._release_at_end(graph, graph.pool())

    def _made(self, pool: Any, *arguments: Any, **options: Any) -> None:
        given = (
            dict(zip(("allocator", "use_on_oom", "no_split"), arguments, strict=False)) | options
        )
        traits = [name for name in ("use_on_oom", "no_split") if given.get(name)]
        self._tell("pool_create", pool.id, *traits)
        self._release_at_end(pool, pool.id)

    def _release_at_end(self, owner: Any, pool: Sequence[int]) -> None:
        pool = tuple(pool)
        self._owners[pool] += 1
        end = weakref.finalize(owner, self._released, pool, 1)
        end.atexit = False
        self._ends[owner] = end

    def _released(self, pool: Sequence[int], owners: int = 0) -> None:
        self._owners[tuple(pool)] -= owners
        if not self._owners[tuple(pool)]:
            with suppress(Exception):
                self._tell_segments(pool)
        self._tell("pool_release", pool)

    def _tell_segments(self, pool: Sequence[int]) -> None:
        """Tell which segments a pool has: address, bytes and stream, each in base 16.

        Up to PyTorch 2.12, events do not name the pool. Those of a pool whose memory was given back
        are not in the snapshot at the end either.
        """
        if self._torch.__version__ >= (2, 13):
            return
        taken = self._torch.cuda.memory_snapshot
        known = inspect.signature(taken).parameters
        options = {"mempool_id": pool, "include_traces": False}  # from 2.7 and 2.10 on
        held = [
            f"{segment['address']:x}_{segment['total_size']:x}_{segment['stream']:x}"
            for segment in taken(**{name: options[name] for name in known if name in options})
            if tuple(segment["segment_pool_id"]) == tuple(pool)
        ]
        self._tell(POOL_SEGMENTS, pool, *held)

    def _reset(self, graph: Any) -> None:
        end = self._ends.pop(graph, None)
        if end is not None:
            end()


def _wrap(
    owner: Any,
    name: str,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Call functions before and after a function of a class or module, where there is one."""
    original = getattr(owner, name, None)
    if original is None:
        return

    def called(*arguments: Any, **options: Any) -> Any:
        if before is not None:
            with suppress(Exception):
                before(*arguments, **options)
        result = original(*arguments, **options)
        if after is not None:
            with suppress(Exception):
                after(*arguments, **options)
        return result

    setattr(owner, name, called)


_used: set[str] = set()


def _watch(
    owner: Any, name: str, feature: str, counts: Any = lambda *args, **options: True
) -> None:
    """Remember that a function of a class or module is called, where there is such a function."""

    def seen(*args: Any, **options: Any) -> None:
        if counts(*args, **options):
            _used.add(feature)

    _wrap(owner, name, before=seen)


def _watch_features(torch: Any) -> None:
    """Remember what the program does that allocator settings can break."""
    _watch(torch.UntypedStorage, "_share_cuda_", "cuda_ipc")
    _watch(torch.cuda.memory, "_set_allocator_settings", "sets_allocator")
    _watch(torch._C, "_accelerator_setAllocatorSettings", "sets_allocator")
    pool = getattr(torch.cuda.memory, "MemPool", None)
    if pool is not None:

        def has_allocator(_pool: Any, allocator: Any = None, *_rest: Any, **_options: Any) -> bool:
            return allocator is not None

        _watch(pool, "__init__", "mem_pool", has_allocator)


def _features() -> list[str]:
    """What the program did that allocator settings can break."""
    custom = any(name.rpartition(".")[2] == "custom_all_reduce" for name in list(sys.modules))
    return sorted(_used | ({"custom_all_reduce"} if custom else set()))


def _overloads(torch: Any) -> dict[str, str]:
    """The overloads of PyTorch's operators as C++ names them, and the operators' own names.

    For example "aten::add_Tensor", an overload of "aten::add". Empty if labels are not operators.
    """
    if os.environ.get("ALLOCBENCH_STACKS") != "all":
        return {}
    schemas = torch._C._jit_get_all_schemas()
    return {
        f"{schema.name}_{schema.overload_name}": schema.name
        for schema in schemas
        if schema.overload_name
    }


def _mapped() -> list[str]:
    """The shared libraries that this process has loaded."""
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        places = {line.rstrip("\n").partition("/")[2] for line in maps if ".so" in line}
    return sorted(f"/{place}" for place in places if place)


def after_torch(torch: ModuleType) -> None:
    """Record from the initialization of CUDA on; a program that forks must not find it done."""
    folder = Path(os.environ["ALLOCBENCH_RECORD"])
    torch.cuda._lazy_call(lambda: HistoryRecorder(torch, folder).start())
    limit = os.environ.get("ALLOCBENCH_STEPS")
    with suppress(Exception):  # a program that is not watched runs all the same
        _watch_features(torch)
    with suppress(Exception):
        PrivatePools(torch)
    try:
        StepMarks(torch, int(limit) if limit else None)
    except Exception as error:
        if limit:
            HistoryRecorder(torch, folder).complain(error)
