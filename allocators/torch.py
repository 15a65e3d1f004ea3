# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with PyTorch: `use("bfc")` before the program touches CUDA."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from allocbench.allocators import _core
from allocbench.allocators._core import SpecError
from allocbench.allocators.programs import GpuUse, Program

HOOKS = {
    "set_reset_fn": "allocbench_torch_reset",
    "set_memory_fraction_fn": "allocbench_torch_memory_fraction",
    "set_base_alloc_fn": "allocbench_torch_base",
    "set_record_stream_fn": "allocbench_torch_record_stream",
    "set_begin_allocate_to_pool": "allocbench_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "allocbench_torch_end_pool",
    "set_release_pool": "allocbench_torch_release_pool",
}
"""The setters of a pluggable allocator for functions other than alloc and free, with our functions.

Functions that are not set silently do nothing. `set_record_stream_fn` is required for safety:
without it, blocks used on a second stream would be reused while they are still being read there.
"""
_NEEDED = "set_record_stream_fn"

_used: Program | None = None


def use(
    spec: str, *, limit: str | int | None = None, poison: bool = False, steps: bool = True
) -> Program:
    """Make PyTorch allocate all its GPU memory through an allocator until this process ends.

    Call it once, before anything is on a GPU, because PyTorch cannot change its allocator later. A
    failing request raises torch.OutOfMemoryError with the allocator's statistics. PyTorch's own
    statistics (`torch.cuda.max_memory_allocated` and others) report this allocator's numbers; its
    snapshots and memory history are not available.

    spec, limit, poison: see `allocbench.allocators.programs.Program`.
    steps: begin a step after each call of an optimizer's `step`.

    Raises SpecError if the spec is invalid, if this is the second call, if CUDA has already been
    initialized, and if PyTorch, the driver or a GPU is missing.
    """
    global _used
    if _used is not None:
        raise SpecError(f"PyTorch already gets its memory from {_used.spec}")
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise SpecError(f"PyTorch {torch.__version__} was built without CUDA")
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise SpecError(
            "CUDA is already initialized: select the allocator before anything is on a GPU"
        )
    address = _core.entry_point
    alloc, free = address("allocbench_torch_alloc"), address("allocbench_torch_free")
    plugged = torch._C._cuda_customAllocator(alloc, free)
    if not hasattr(plugged, _NEEDED):
        raise SpecError(f"PyTorch {torch.__version__} is too old: it has no {_NEEDED}")
    program = Program(spec, limit=limit, poison=poison)
    for setter, function in HOOKS.items():
        if hasattr(plugged, setter):
            getattr(plugged, setter)(address(function))
    _core.serve_torch(program._core)
    torch._C._cuda_changeCurrentAllocator(plugged)
    _used = program
    _answer_for(program)
    if steps:
        register_optimizer_step_post_hook(lambda *_: program.step())
    return program


def statistics(use: GpuUse | None) -> dict[str, Any]:
    """The numbers of a GPU in PyTorch's nested format; all 0 if `use` is None."""
    stats = use.stats if use else None
    nested: dict[str, Any] = {}
    for theirs, ours in {
        "requested_bytes": "requested",
        "allocated_bytes": "allocated",
        "active_bytes": "allocated",
        "reserved_bytes": "reserved",
    }.items():
        now, peak = (getattr(stats, name, 0) for name in (ours, f"peak_{ours}"))
        nested[theirs] = {"all": {"current": now, "peak": peak}}
    allocations, frees = (getattr(stats, name, 0) for name in ("allocations", "frees"))
    nested["allocation"] = {
        "all": {"current": allocations - frees, "allocated": allocations, "freed": frees}
    }
    nested["num_ooms"] = use.seen.failures if use else 0
    nested["num_alloc_retries"] = stats.retries if stats else 0
    return nested


def _answer_for(program: Program) -> None:
    """Replace PyTorch's statistics functions, which raise with a pluggable allocator."""

    def nested(device: Any = None) -> dict[str, Any]:
        wanted = torch.cuda._utils._get_device_index(device, optional=True)
        matching = [use for use in program.uses() if use.ordinal == wanted]
        return statistics(matching[0] if matching else None)

    def reset(device: Any = None) -> None:
        program.reset_peaks()

    for name, function in {
        "memory_stats_as_nested_dict": nested,
        "reset_peak_memory_stats": reset,
        "reset_accumulated_memory_stats": reset,
        "reset_max_memory_allocated": reset,
        "reset_max_memory_cached": reset,
    }.items():
        for module in (torch.cuda, torch.cuda.memory):
            if hasattr(module, name):
                setattr(module, name, function)
