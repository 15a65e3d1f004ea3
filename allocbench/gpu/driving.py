# SPDX-License-Identifier: Apache-2.0
"""A program of the catalogue driven on a contestant: its steps timed, what it computed kept."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from allocbench.allocators.programs import Program as Memory
from allocbench.gpu.contestants import Contestant
from allocbench.workloads import catalog
from allocbench.workloads.catalog import Workload
from allocbench.workloads.program import Program


def program_of(workload: str) -> Program[Any]:
    """The PyTorch program behind a bundled workload."""
    info = catalog.info(workload)
    if not isinstance(info, Workload):
        raise ValueError(f"{workload} is no program")
    program: Program[Any] = importlib.import_module(info.module).PROGRAM
    return program


def configuration(program: Program[Any], *, tiny: bool, steps: int | None = None) -> Any:
    """The program's configuration; with `steps`, so many, of lengths drawn from its own."""
    config = program.tiny if tiny else program.full
    if steps is None:
        return config
    draw = random.Random(program.seed)
    return dataclasses.replace(config, lengths=tuple(draw.choices(config.lengths, k=steps)))


def begin(who: Contestant, *, limit: str | None = None, poison: bool = False) -> Memory | None:
    """Let PyTorch use the contestant; None for one of its own, which its variables have chosen."""
    if who.spec is not None:
        from allocbench.allocators import torch as plugged

        return plugged.use(who.spec, limit=limit, poison=poison)
    if limit is not None:
        from allocbench.allocators import parse_bytes

        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(parse_bytes(limit) / total)
    return None


class Steps:
    """The time of each step, on the GPU's own clock where there is one; a sample at each."""

    def __init__(self, device: str, sample: Callable[[], int]) -> None:
        self._on_gpu, self._sample = device == "cuda", sample
        self._moments: list[Any] = []
        self.samples: list[int] = []

    def mark(self, label: str) -> None:
        """What a program calls; steps end where the next begins, the last at the teardown."""
        if label not in ("step", "teardown"):
            return
        self.samples.append(self._sample())
        if not self._on_gpu:
            self._moments.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream())
        self._moments.append(event)

    def seconds(self) -> list[float]:
        """Of each step; waits for the GPU."""
        pairs = list(zip(self._moments, self._moments[1:], strict=False))
        if not self._on_gpu:
            return [end - start for start, end in pairs]
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]


@contextlib.contextmanager
def outcomes() -> Iterator[list[Any]]:
    """What a program computes: the losses that go backward, and the sums of chosen tokens.

    They are kept on the device, so that nothing waits for them before the end.
    """
    kept: list[Any] = []
    backward, argmax = torch.autograd.backward, torch.Tensor.argmax

    def keeping_backward(tensors: Any, *rest: Any, **options: Any) -> None:
        kept.append(tensors.detach().float().clone())
        backward(tensors, *rest, **options)

    def keeping_argmax(self: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        chosen = argmax(self, *rest, **options)
        kept.append(chosen.sum().float())
        return chosen

    vars(torch.autograd)["backward"] = keeping_backward
    type.__setattr__(torch.Tensor, "argmax", keeping_argmax)
    try:
        yield kept
    finally:
        vars(torch.autograd)["backward"] = backward
        type.__setattr__(torch.Tensor, "argmax", argmax)


def told(outcomes: list[Any]) -> list[float | None]:
    """The values of what was kept, None for what is no finite number."""
    values = [float(value) for value in outcomes]
    return [value if math.isfinite(value) else None for value in values]


def tokens(config: Any) -> list[int] | None:
    """Tokens of each step, for a program with a batch and lengths."""
    lengths, batch = getattr(config, "lengths", None), getattr(config, "batch", None)
    return None if lengths is None or batch is None else [batch * length for length in lengths]


def torch_row() -> dict[str, Any]:
    """PyTorch's own statistics of this process under the names of a result row."""
    stats = torch.cuda.memory_stats()
    return {
        "peak_requested": stats.get("requested_bytes.all.peak"),
        "peak_allocated": stats.get("allocated_bytes.all.peak"),
        "peak_reserved": stats.get("reserved_bytes.all.peak"),
        "device_calls": stats.get("num_device_alloc", 0) + stats.get("num_device_free", 0),
        "failures": stats.get("num_ooms"),
        "retries": stats.get("num_alloc_retries"),
    }
