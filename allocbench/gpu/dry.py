# SPDX-License-Identifier: Apache-2.0
"""A program without a GPU: tiny, on the processor, its storages asked for on a stand-in driver."""

from __future__ import annotations

from typing import Any

import torch

from allocbench.allocators.programs import Program as Memory
from allocbench.gpu import driving
from allocbench.gpu.contestants import Contestant
from allocbench.workloads import ALLOC, FREE, MARK, Provenance, Trace
from allocbench.workloads.program import Program
from allocbench.workloads.recorder import record


def run(who: Contestant, program: Program[Any], config: Any, *, poison: bool) -> dict[str, Any]:
    """The same result as on a GPU; the times are of the processor, and mean nothing."""
    from allocbench.gpu.program import summary

    steps = driving.Steps("cpu", lambda: 0)
    torch.manual_seed(program.seed)
    with driving.outcomes() as found:
        recorder = record(lambda mark: program.run(config, "cpu", _both(mark, steps.mark)), "cpu")
    trace = recorder.trace(Provenance(name="dry"))
    memory = None if who.spec is None else Memory(who.spec, poison=poison)
    if memory:
        replay(trace, memory)
    timed: dict[str, list[Any]] = {"seconds": steps.seconds(), "reserved": steps.samples}
    return {
        **summary([timed], driving.tokens(config)),
        "outcomes": driving.told(found),
        "row": memory.uses()[0].row() if memory else {},
        "gpu_used_at_steps": None,
        "gpu_peak_used": memory.uses()[0].gpu_peak_used if memory else None,
    }


def replay(trace: Trace, memory: Memory) -> None:
    """Ask a program's memory for what a trace asks for, and give it back."""
    on, address = memory.on(), {}
    for op, block, size in zip(trace.op, trace.block, trace.size, strict=True):
        if op == ALLOC:
            address[block] = on.allocate(int(size))
        elif op == FREE:
            on.deallocate(address.pop(block))
        elif op == MARK and block == trace.step_label:
            memory.step()


def _both(one: Any, other: Any) -> Any:
    def mark(label: str) -> None:
        one(label)
        other(label)

    return mark
