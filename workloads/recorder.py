# SPDX-License-Identifier: Apache-2.0
"""A hook under PyTorch's operators that sees every storage appear and disappear."""

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

from workloads.trace import ALLOC, FREE, MARK, Provenance, Trace

Event = tuple[int, int, int, int]  # op, block, size, label


class Recorder(TorchDispatchMode):
    """While entered, records the storages on one type of device, fake or real.

    A storage is first seen in the outputs of the operator that made it, and is gone when the
    C++ object behind it is: at that moment the weak reference to its wrapper calls back. What
    existed before is invisible. Cyclic garbage is collected at marks only (see `record`).
    """

    def __init__(self, device_type: str) -> None:
        TorchDispatchMode.__init__(self)
        self.seen: set[str] = set()
        """Operators that ran, as "name", and as "name:dtype" for each type of their outputs."""
        self._device_type = device_type
        self._events: list[Event] = []
        self._labels: dict[str, int] = {"": 0}
        self._blocks = 0
        self._live: dict[int, tuple[int, int, weakref.ref[Any]]] = {}  # by address: block, size

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
        outputs = func(*args, **(kwargs or {}))
        operator = func._schema.name
        self.seen.add(operator)
        for tensor in _tensors_in(outputs):
            if tensor.device.type == self._device_type:
                self.seen.add(f"{operator}:{str(tensor.dtype).removeprefix('torch.')}")
                self._see(tensor.untyped_storage(), operator)
        return outputs

    def trace(self, provenance: Provenance) -> Trace:
        """What was recorded so far; frees with nothing between them are in order of their ids.

        Autocast drops its cached weights in an order that differs from run to run, and nothing
        can tell adjacent frees apart: sorted, repeated recordings are identical.
        """
        events: list[Event] = []
        for op, run in groupby(self._events, key=itemgetter(0)):
            ordered = sorted if op == FREE else list
            events += ordered(run)
        op, block, size, label = np.array(events, np.uint64).reshape(-1, 4).T
        return Trace(
            op=op.astype(np.uint8),
            block=block.astype(np.uint32),
            size=size.copy(),
            stream=np.zeros(len(events), np.uint16),
            labels=tuple(self._labels),
            label=label.astype(np.uint32),
            provenance=provenance,
        )

    def _see(self, storage: torch.UntypedStorage, operator: str) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address in self._live:
            block, known_size, _ = self._live[address]
            if known_size == size:
                return
            self._free(address, block)  # resized in place
        if not size:
            return
        block, self._blocks = self._blocks, self._blocks + 1
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
    """Run `run(mark)` under a recorder, deterministically, and return the recorder.

    Backward passes run on this thread, and garbage is collected at marks and at the end alone.
    """
    recorder = Recorder(device_type)
    collecting, threading = gc.isenabled(), torch.autograd.is_multithreading_enabled()
    gc.collect()
    gc.disable()
    torch.autograd.set_multithreading_enabled(False)
    try:
        with recorder:
            run(recorder.mark)
            gc.collect()
    finally:
        torch.autograd.set_multithreading_enabled(threading)
        if collecting:
            gc.enable()
    return recorder


def _tensors_in(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, list | tuple):
        for output in outputs:
            yield from _tensors_in(output)
