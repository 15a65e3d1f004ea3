# SPDX-License-Identifier: Apache-2.0
"""Dry runs: the tiny program runs on the CPU, its allocations on the null GPU's driver."""

# mypy: allow-untyped-calls

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from allocbench.allocators.programs import Program as Memory
from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace
from benchmarks.workshop.gpu import driving
from benchmarks.workshop.gpu.contestants import Contestant
from benchmarks.workshop.models.program import Mark, ModelProgram


def run(
    who: Contestant, program: ModelProgram[Any], config: Any, *, poison: bool
) -> dict[str, Any]:
    """A result of the same form as on a GPU; its times are CPU times and not meaningful."""
    steps = driving.Steps("cpu", lambda: 0)
    torch.manual_seed(program.seed)
    with driving.outcomes() as outcomes:
        trace = record(lambda mark: program.run(config, "cpu", _both(mark, steps.mark)))
    memory = None if who.spec is None else Memory(who.spec, poison=poison)
    if memory:
        replay(trace, memory)
    timed: dict[str, list[Any]] = {"seconds": steps.seconds(), "reserved": steps.samples}
    return {
        **driving.step_times([timed], driving.tokens(config)),
        "outcomes": driving.finite(outcomes),
        "row": memory.uses()[0].row() if memory else {},
        "gpu_used_at_steps": None,
        "gpu_peak_used": memory.uses()[0].gpu_peak_used if memory else None,
    }


class _Recorder(TorchDispatchMode):
    """While active, records when the storages that operators return are created and destroyed."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[str, int] = {}
        self.events: list[tuple[int, int, int]] = []  # op, block or label, size
        self._live: dict[int, weakref.ref[Any]] = {}  # by address of the storage's object
        self._blocks = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in tree_leaves(outputs):
            if isinstance(output, torch.Tensor):
                self._see(output.untyped_storage())
        return outputs

    def mark(self, label: str) -> None:
        self.events.append((MARK, self.labels.setdefault(label, len(self.labels)), 0))

    def _see(self, storage: torch.UntypedStorage) -> None:
        address, size, block = storage._cdata, storage.nbytes(), self._blocks
        if address in self._live or not size:
            return
        self._live[address] = weakref.ref(storage, partial(self._free, address, block))
        self.events.append((ALLOC, block, size))
        self._blocks += 1

    def _free(self, address: int, block: int, _: object) -> None:
        del self._live[address]
        self.events.append((FREE, block, 0))


def record(run: Callable[[Mark], None]) -> Trace:
    """The trace of `run(mark)` on the CPU, with backward passes on this thread."""
    with torch.autograd.set_multithreading_enabled(False), _Recorder() as recorder:
        run(recorder.mark)
    op, block, size = np.array(recorder.events, np.uint64).reshape(-1, 3).T
    return Trace(
        op=op.astype(np.uint8),
        block=block.astype(np.uint32),
        size=size.copy(),
        stream=np.zeros(len(op), np.uint16),
        labels=tuple(recorder.labels),
        provenance=Provenance(name="dry"),
    )


def replay(trace: Trace, memory: Memory) -> None:
    """Perform the allocs, frees and steps of a trace on a program's memory."""
    stream, address = memory.on(), {}
    for op, block, size in zip(trace.op, trace.block, trace.size, strict=True):
        if op == ALLOC:
            address[block] = stream.allocate(int(size))
        elif op == FREE:
            stream.deallocate(address.pop(block))
        elif op == MARK and block == trace.step_label:
            memory.step()


def _both(first: Any, second: Any) -> Any:
    def mark(label: str) -> None:
        first(label)
        second(label)

    return mark
