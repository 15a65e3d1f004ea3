# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with PyTorch: `use("bfc")` before the program touches CUDA."""

from __future__ import annotations

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from allocbench.allocators import _core, torch_native_only, torch_statistics
from allocbench.allocators._core import SpecError
from allocbench.allocators.programs import Program

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

NATIVE_ONLY = torch_native_only.FEATURES
"""Features that PyTorch supports only with its own allocator; with any other they raise."""

_used: Program | None = None


def use(
    spec: str, *, limit: str | int | None = None, poison: bool = False, steps: bool = True
) -> Program:
    """Make PyTorch allocate all its GPU memory through an allocator until this process ends.

    Call it once, before anything is on a GPU: PyTorch cannot change its allocator later. A failed
    request raises torch.OutOfMemoryError with the numbers of the allocator. The statistics of
    `torch.cuda` and `torch.accelerator` report the numbers of this allocator. The features in
    `NATIVE_ONLY`, such as snapshots and the memory history, are not available. CUDA is not called
    before the program first requests GPU memory.

    spec, limit, poison: see `allocbench.allocators.programs.Program`.
    steps: begin a step after each call of an optimizer's `step`.

    Raises SpecError if the spec is wrong, if it is called a second time, if CUDA is already
    initialized, and if PyTorch is too old or was built without CUDA.
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
    pluggable = torch._C._cuda_customAllocator(alloc, free)
    if not hasattr(pluggable, _NEEDED):
        raise SpecError(f"PyTorch {torch.__version__} is too old: it has no {_NEEDED}")
    program = Program(spec, limit=limit, poison=poison)
    for setter, function in HOOKS.items():
        if hasattr(pluggable, setter):
            getattr(pluggable, setter)(address(function))
    _core.serve_torch(program._core)
    torch._C._cuda_changeCurrentAllocator(pluggable)
    _used = program
    _answer_for(program)
    if steps:
        register_optimizer_step_post_hook(lambda *_: program.step())
    return program


def _answer_for(program: Program) -> None:
    """Replace functions of PyTorch that raise with a pluggable allocator."""
    torch_statistics.install(program)
    torch_native_only.install(program.spec)
