# SPDX-License-Identifier: Apache-2.0
"""A dispatch mode for PyTorch's operators that records when storages are created and destroyed."""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from allocbench.workloads.ordering import ordered
from allocbench.workloads.trace import ALLOC, FREE, MARK, Provenance, Trace

Event = tuple[int, int, int, int]  # op, block, size, label

_PUTS = (
    torch.ops.aten.index_add.default,
    torch.ops.aten.index_put.default,
    torch.ops.aten.scatter_add.default,
)


class Recorder(TorchDispatchMode):
    """While active, records the storages on one type of device, fake or real.

    A storage is first seen in the outputs of the operator that created it. It is gone when the
    underlying C++ object is: then the weak reference to its Python wrapper calls back. Storages
    that existed before are not seen. Cyclic garbage is only collected at marks (see `record`).
    """

    def __init__(self, device_type: str) -> None:
        TorchDispatchMode.__init__(self)
        self.seen: set[str] = set()
        """Operators that ran, as "name" and as "name:dtype" for each type of their outputs."""
        self._device_type = device_type
        self._events: list[Event] = []
        self._labels: dict[str, int] = {"": 0}
        self._live: dict[int, tuple[int, int, weakref.ref[Any]]] = {}  # address -> block, size
        self._nodes: list[
            tuple[int, int] | None
        ] = []  # by block: the autograd node that created it
        self._reuses: dict[
            int, int
        ] = {}  # block -> the block that it would replace in place, if that one dies

    def mark(self, label: str) -> None:
        """Begin a step or a phase, after collecting cyclic garbage."""
        gc.collect()
        self._events.append((MARK, self._label(label), 0, 0))

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        reused = self._reused(func, args)
        outputs = func(*args, **(kwargs or {}))
        operator = func._schema.name
        self.seen.add(operator)
        for tensor in _tensors_in(outputs):
            if tensor.device.type == self._device_type:
                self.seen.add(f"{operator}:{str(tensor.dtype).removeprefix('torch.')}")
                self._see(tensor.untyped_storage(), operator)
        if reused is not None:
            self._reuses[len(self._nodes) - 1] = reused
        return outputs

    def trace(self, provenance: Provenance) -> Trace:
        """The trace recorded so far, in the order of `ordering.ordered`."""
        op, block, size, label = np.array(list(self._in_place()), np.uint64).reshape(-1, 4).T
        return ordered(
            Trace(
                op=op.astype(np.uint8),
                block=block.astype(np.uint32),
                size=size.copy(),
                stream=np.zeros(len(op), np.uint16),
                labels=tuple(self._labels),
                label=label.astype(np.uint32),
                provenance=provenance,
            )
        )

    def _in_place(self) -> list[Event]:
        """The events as they would be without a dispatch mode, when autograd works in place.

        If a tensor is used twice, autograd adds the second gradient to the first one, and if it was
        indexed, puts the gradient into a tensor of zeros: in place if nothing else references it.
            But while a dispatch mode is active, as here, it creates a new storage and drops the old
            one.
        """
        events, same = list[Event](), dict[int, int]()
        for op, group in groupby(self._events, key=itemgetter(0)):
            run = list(group)
            if op == FREE:
                freed = [same.get(block, block) for _, block, _, _ in run]
                created = events[-1][1] if events[-1][0] == ALLOC else -1
                old = self._reuses.get(created, -1)
                old = same.get(old, old)
                if old in freed:
                    freed.remove(old)
                    same[created] = old
                    events.pop()
                run = [(FREE, same.get(block, block), 0, 0) for block in freed]
            events += run
        return events

    def _reused(self, func: Any, args: tuple[Any, ...]) -> int | None:
        """The block that, without a mode, would be updated in place, if it dies now."""
        adds, puts = func is torch.ops.aten.add.Tensor, func in _PUTS
        if not (adds or puts) or torch.is_grad_enabled() or not (node := _node()):
            return None
        if not torch.ops.aten.is_non_overlapping_and_dense(args[0]):
            return None
        live = self._live.get(args[0].untyped_storage()._cdata)
        # The engine adds to the output of an earlier node; a node's inputs live as long as it runs.
        return live[0] if live and (self._nodes[live[0]] == node) == puts else None

    def _see(self, storage: torch.UntypedStorage, operator: str) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address in self._live:
            block, known_size, _ = self._live[address]
            if known_size == size:
                return
            self._free(address, block)  # resized in place
        if not size:
            return
        block = len(self._nodes)
        self._nodes.append(_node())
        gone = weakref.ref(storage, partial(self._gone, address, block))
        self._live[address] = block, size, gone
        self._events.append((ALLOC, block, size, self._label(operator)))

    def _gone(self, address: int, block: int, _: object) -> None:
        self._free(address, block)

    def _free(self, address: int, block: int) -> None:
        del self._live[address]
        self._events.append((FREE, block, 0, 0))

    def _label(self, label: str) -> int:
        return self._labels.setdefault(label, len(self._labels))


def record(run: Any, device_type: str) -> Recorder:
    """Run `run(mark)` deterministically under a recorder and return the recorder.

    Backward passes run on this thread, and garbage is collected only at marks and at the end.
    """
    recorder = Recorder(device_type)
    collecting, threading = gc.isenabled(), torch.autograd.is_multithreading_enabled()
    gc.collect()
    gc.freeze()  # speeds up collection by ignoring objects that existed before
    gc.disable()
    torch.autograd.set_multithreading_enabled(False)
    try:
        with recorder:
            run(recorder.mark)
            gc.collect()
    finally:
        torch.autograd.set_multithreading_enabled(threading)
        gc.unfreeze()
        if collecting:
            gc.enable()
    return recorder


def _node() -> tuple[int, int] | None:
    """The current backward pass and its running node, if any."""
    node = torch._C._current_autograd_node()
    return (torch._C._current_graph_task_id(), node._sequence_nr()) if node else None


def _tensors_in(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, list | tuple):
        for output in outputs:
            yield from _tensors_in(output)
