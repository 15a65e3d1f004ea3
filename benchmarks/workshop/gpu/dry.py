# SPDX-License-Identifier: Apache-2.0
"""Dry runs: the tiny program runs on the CPU, its allocations on the null GPU's driver."""

from __future__ import annotations

from typing import Any

import torch

from allocbench.allocators.programs import Program as Memory
from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace
from allocbench.workloads.program import Program
from allocbench.workloads.recorder import record
from benchmarks.workshop.gpu import driving
from benchmarks.workshop.gpu.contestants import Contestant


def run(who: Contestant, program: Program[Any], config: Any, *, poison: bool) -> dict[str, Any]:
    """A result of the same form as on a GPU; its times are CPU times and not meaningful."""
    steps = driving.Steps("cpu", lambda: 0)
    torch.manual_seed(program.seed)
    with driving.outcomes() as outcomes:
        recorder = record(lambda mark: program.run(config, "cpu", _both(mark, steps.mark)), "cpu")
    trace = recorder.trace(Provenance(name="dry"))
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
