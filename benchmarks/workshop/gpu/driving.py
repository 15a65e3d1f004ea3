# SPDX-License-Identifier: Apache-2.0
"""Run a program of the catalog: configure it, time its steps, keep what it computes."""

import contextlib
import dataclasses
import importlib
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from allocbench.allocators.programs import Program as Memory
from allocbench.workloads import catalog
from allocbench.workloads.catalog import Workload
from benchmarks.workshop.gpu.contestants import Contestant
from benchmarks.workshop.models.program import ModelProgram


def program_of(workload: str) -> ModelProgram[Any]:
    """The PyTorch program behind a bundled workload."""
    info = catalog.info(workload)
    if not isinstance(info, Workload):
        raise ValueError(f"{workload} is not a PyTorch program")
    program: ModelProgram[Any] = importlib.import_module(info.module).PROGRAM
    return program


def configuration(program: ModelProgram[Any], *, tiny: bool, steps: int | None = None) -> Any:
    """The program's configuration; with `steps`, that many steps with lengths drawn from it."""
    config = program.tiny if tiny else program.full
    if steps is None:
        return config
    draw = random.Random(program.seed)
    return dataclasses.replace(config, lengths=tuple(draw.choices(config.lengths, k=steps)))


def begin(who: Contestant, *, limit: str | None = None, poison: bool = False) -> Memory | None:
    """Make PyTorch use the contestant; None if environment variables have already chosen it."""
    if who.spec is not None:
        from allocbench.allocators import torch as adapter

        return adapter.use(who.spec, limit=limit, poison=poison)
    if limit is not None:
        from allocbench.allocators import parse_bytes

        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(parse_bytes(limit) / total)
    return None


class Steps:
    """Times of the steps, by GPU events if there is a GPU, and one sample per step."""

    def __init__(self, device: str, sample: Callable[[], int]) -> None:
        self._on_gpu, self._sample = device == "cuda", sample
        self._moments: list[Any] = []
        self.samples: list[int] = []

    def mark(self, label: str) -> None:
        """Called by the program. A step ends where the next one or the teardown begins."""
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
        """Seconds of each step; synchronizes with the GPU."""
        pairs = list(zip(self._moments, self._moments[1:], strict=False))
        if not self._on_gpu:
            return [end - start for start, end in pairs]
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in pairs]


@contextlib.contextmanager
def outcomes() -> Iterator[list[Any]]:
    """Collect what a program computes: losses that are backpropagated, and sums of chosen tokens.

    The values stay on the device, so that collecting them does not synchronize.
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


def finite(outcomes: list[Any]) -> list[float | None]:
    """The collected values as floats; None for one that is not finite."""
    values = [float(value) for value in outcomes]
    return [value if math.isfinite(value) else None for value in values]


def tokens(config: Any) -> list[int] | None:
    """Tokens of each step, or None if the configuration has no batch and lengths."""
    lengths, batch = getattr(config, "lengths", None), getattr(config, "batch", None)
    return None if lengths is None or batch is None else [batch * length for length in lengths]


def step_times(runs: list[dict[str, list[Any]]], tokens: list[int] | None) -> dict[str, Any]:
    """The runs, and statistics of all their steps; the first of several runs is a warm-up."""
    measured = runs[1:] or runs
    seconds = [step for run in measured for step in run["seconds"]]
    return {
        "runs": runs,
        "step_seconds_median": statistics.median(seconds) if seconds else None,
        "step_seconds_quartiles": statistics.quantiles(seconds, n=4) if len(seconds) > 1 else None,
        "run_seconds": [sum(run["seconds"]) for run in measured],
        "tokens_per_second": sum(tokens) * len(measured) / sum(seconds)
        if tokens and seconds
        else None,
    }


def torch_row() -> dict[str, Any]:
    """PyTorch's memory statistics of this process, named like the columns of a result row."""
    stats = torch.cuda.memory_stats()
    return {
        "peak_requested": stats.get("requested_bytes.all.peak"),
        "peak_allocated": stats.get("allocated_bytes.all.peak"),
        "peak_reserved": stats.get("reserved_bytes.all.peak"),
        "device_calls": stats.get("num_device_alloc", 0) + stats.get("num_device_free", 0),
        "failures": stats.get("num_ooms"),
        "retries": stats.get("num_alloc_retries"),
    }
