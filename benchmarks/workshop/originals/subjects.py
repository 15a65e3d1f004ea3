# SPDX-License-Identifier: Apache-2.0
"""What replays the workloads: an allocator of this process, or PyTorch's in another one."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.null_gpu import device, launch
from allocbench.questions.league import DEVICE
from allocbench.replays.capacity import STEP, boundary
from allocbench.replays.runner import Runner, fresh
from allocbench.workloads import Trace

_ROOM = 1 << 40  # bytes of the null GPU, from which each replay takes what it should not have


@dataclass(frozen=True)
class Seen:
    """A replay on DEVICE: peak reserved bytes, device calls, the address of each alloc."""

    reserved: int
    calls: int
    addresses: NDArray[np.uint64]


class Subject(Protocol):
    """Something that replays traces."""

    def replay(self, trace: Trace) -> Seen:
        """Replay a trace on DEVICE."""

    def least(self, trace: Trace, expected: int | None = None) -> int | None:
        """Bytes of the smallest device on which the trace completes, or None.

        If it completes on `expected` bytes and fails on STEP less, no other sizes are tried.
        """


@dataclass(frozen=True)
class Here:
    """An allocator of this process, by its spec."""

    spec: str

    def replay(self, trace: Trace) -> Seen:
        """Replay a trace on DEVICE."""
        found = allocators.replay(trace, fresh(self.spec, DEVICE), detail=True)
        assert found.detail is not None
        addresses = found.detail["placements"]["address"]
        return Seen(found.stats.peak_reserved, found.device.calls, addresses)

    def least(self, trace: Trace, expected: int | None = None) -> int | None:
        """As in Subject."""
        run = Runner(trace, DEVICE)
        if _is_least(partial(run.completes, self.spec), expected):
            return expected
        return run.min_capacity(self.spec)


class PyTorch:
    """The process that `programs/pytorch.py` describes."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder
        self._events: dict[int, Path] = {}

    def replay(self, trace: Trace) -> Seen:
        """Replay a trace on DEVICE."""
        file = self._folder / "placements.npy"
        found = self._ask(trace, allocators.make_device(DEVICE).capacity, str(file))
        return Seen(found["reserved"], found["calls"], np.load(file))

    def least(self, trace: Trace, expected: int | None = None) -> int | None:
        """As in Subject."""

        def enough(capacity: int) -> bool:
            return bool(self._ask(trace, capacity, None)["completes"])

        if _is_least(enough, expected):
            return expected
        reserved = self.replay(trace).reserved
        return boundary(
            enough, max_load=trace.max_load, peak_reserved=reserved, above=False
        ).capacity

    def _ask(self, trace: Trace, capacity: int, placements: str | None) -> dict[str, Any]:
        file = self._folder / f"{trace.name}.npz"
        if not file.exists():
            stream = np.zeros(len(trace), np.uint16) if trace.stream is None else trace.stream
            np.savez(file, op=trace.op, block=trace.block, size=trace.size, stream=stream)
        asked = {"events": str(file), "capacity": capacity, "placements": placements}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{trace.name}: PyTorch's process ended")
        found: dict[str, Any] = json.loads(answer)
        return found


def _is_least(enough: Callable[[int], bool], capacity: int | None) -> bool:
    return capacity is not None and enough(capacity) and not enough(capacity - STEP)


@contextmanager
def pytorch(python: Path) -> Iterator[PyTorch]:
    """A process of a Python with PyTorch's CUDA build, on a null GPU."""
    with tempfile.TemporaryDirectory() as folder:
        gpu = device.read(f"null:h100,memory={_ROOM},context=0")
        environment = os.environ | launch.environment(gpu, folder)
        adapter = str(Path(__file__).with_name("programs") / "pytorch.py")
        with subprocess.Popen(
            [str(python), adapter],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            yield PyTorch(process, Path(folder))
            assert process.stdin is not None
            process.stdin.close()
