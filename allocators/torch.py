# SPDX-License-Identifier: Apache-2.0
"""Use any allocator with PyTorch: `use("bfc")` before the program touches CUDA."""

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from allocbench.allocators import _core
from allocbench.allocators._core import Flow, SpecError
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

_TREES = 'CUDA graph trees (torch.compile, mode="reduce-overhead")'
_POOLS = "torch.cuda.MemPool"
_HISTORY = "the memory history (torch.cuda.memory._record_memory_history)"
_FUNCTIONS = {
    ("_C", "_cuda_beginAllocateCurrentThreadToPool"): _TREES,
    ("_C", "_cuda_checkPoolLiveAllocations"): _TREES,
    ("_C", "_cuda_getCheckpointState"): _TREES,
    ("_C", "_cuda_setCheckpointPoolState"): _TREES,
    ("_C", "_cuda_memorySnapshot"): "memory snapshots (torch.cuda.memory_snapshot)",
    ("_C", "_cuda_record_memory_history"): _HISTORY,
    ("_C", "_cuda_isHistoryEnabled"): _HISTORY,
    ("cuda.MemPool", "__init__"): _POOLS,
    ("UntypedStorage", "_share_cuda_"): "sharing CUDA tensors between processes",
}
NATIVE_ONLY = tuple(dict.fromkeys(_FUNCTIONS.values()))
"""Features that PyTorch supports only with its own allocator.

With any other, PyTorch raises an error that advises to file an issue. Here the error says why, and
the feature is stored in `met`."""

met: list[str] = []
"""The features that this process tried to use, in order."""

_FLOW = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
_BY_POOL = (
    *("allocation", "segment", "active", "inactive_split"),
    *("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes"),
    "requested_bytes",
)
_WHOLE = ("oversize_allocations", "oversize_segments")
_COUNTS = (
    *("num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams"),
    *("num_device_alloc", "num_device_free"),
)

_SINCE_2_13 = "num_oom_rejections"

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
    _report_statistics(program)
    explain_native_only(program.spec)
    if steps:
        register_optimizer_step_post_hook(lambda *_: program.step())
    return program


def explain_native_only(spec: str) -> None:
    """Make the error of a feature that PyTorch does not support here give the reason."""
    for (path, name), feature in _FUNCTIONS.items():
        owner: Any = torch
        for part in path.split("."):
            owner = getattr(owner, part, None)
        if owner is not None and hasattr(owner, name):
            setattr(owner, name, _explaining(getattr(owner, name), feature, spec))


def _explaining(original: Any, feature: str, spec: str) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return original(*arguments, **options)
        except RuntimeError as error:
            if "does not yet support" not in str(error):
                raise
            if feature not in met:
                met.append(feature)
            raise RuntimeError(
                f"{feature}: PyTorch supports this only with its own allocator, and this program's"
                f" memory comes from {spec}"
            ) from error

    return call


def _nested(use: GpuUse | None) -> dict[str, Any]:
    """A GPU's numbers as PyTorch nests its own, with all of its keys; all 0 without a use."""
    stats: dict[str, Any] = {
        name: {pool: dict(_FLOW) for pool in ("all", "small_pool", "large_pool")}
        for name in _BY_POOL
    }
    stats |= {name: dict(_FLOW) for name in _WHOLE} | dict.fromkeys(_COUNTS, 0)
    stats["max_split_size"] = -1
    if _SINCE_2_13 in (torch.cuda.memory_stats.__doc__ or ""):
        stats[_SINCE_2_13] = 0
    if use is None:
        return stats
    totals, device = use.program.totals, use.device
    for name, flow in {
        "allocation": totals.allocated_blocks,
        "active": totals.active_blocks,
        "allocated_bytes": totals.allocated,
        "active_bytes": totals.active,
        "requested_bytes": totals.requested,
        "reserved_bytes": totals.reserved,
    }.items():
        stats[name]["all"] = _flow(flow)
    obtained = device.malloc_calls + device.map_calls - device.refused_calls
    returned = device.free_calls + device.unmap_calls
    stats["num_device_alloc"], stats["num_device_free"] = obtained, returned
    stats["segment"]["all"] |= {
        "current": obtained - returned,
        "allocated": obtained,
        "freed": returned,
    }
    stats["num_ooms"] = use.program.failures
    stats["num_alloc_retries"] = use.program.retries + use.stats.retries
    return stats


def _report_statistics(program: Program) -> None:
    """Let the functions of torch.cuda and torch.accelerator report a program's numbers.

    PyTorch's own functions raise, or report 0, under a pluggable allocator. These report the same
    values wherever the meaning is the same. What has no meaning here is 0: blocks in a small and a
    large pool, inactive splits, and oversize blocks.
    """

    def wanted(device: Any) -> int:
        return int(torch.cuda._utils._get_device_index(device, optional=True))

    def find(device: Any) -> GpuUse | None:
        ordinal = wanted(device)
        return next((use for use in program.uses() if use.ordinal == ordinal), None)

    def as_nested_dict(device: Any = None) -> dict[str, Any]:
        started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return _nested(find(device)) if started else {}

    def flat(device: Any = None, /) -> OrderedDict[str, Any]:
        return OrderedDict(sorted(_flat("", as_nested_dict(device))))

    def reset_peaks(device: Any = None) -> None:
        program.reset_peaks(wanted(device))

    def reset_counts(device: Any = None) -> None:
        program.reset_counts(wanted(device))

    def fraction(device: Any = None) -> float:
        torch.cuda._lazy_init()  # type: ignore[no-untyped-call]
        gpu = program.on(wanted(device)).device
        return gpu.capacity / gpu.total

    _replace(
        (torch.cuda, torch.cuda.memory),
        memory_stats_as_nested_dict=as_nested_dict,
        reset_peak_memory_stats=reset_peaks,
        reset_max_memory_allocated=reset_peaks,
        reset_max_memory_cached=reset_peaks,
        reset_accumulated_memory_stats=reset_counts,
        get_per_process_memory_fraction=fraction,
    )
    if accelerator := getattr(torch, "accelerator", None):
        modules = (accelerator, getattr(accelerator, "memory", accelerator))
        _replace(
            modules,
            memory_stats=flat,
            reset_peak_memory_stats=reset_peaks,
            reset_accumulated_memory_stats=reset_counts,
        )


def _replace(modules: tuple[Any, ...], **functions: Callable[..., Any]) -> None:
    for module in modules:
        for name, function in functions.items():
            if hasattr(module, name):
                setattr(module, name, function)


def _flow(flow: Flow) -> dict[str, int]:
    return {
        "current": flow.current,
        "peak": flow.peak,
        "allocated": flow.gained,
        "freed": flow.lost,
    }


def _flat(prefix: str, stats: dict[str, Any]) -> list[tuple[str, int]]:
    values: list[tuple[str, int]] = []
    for name, value in stats.items():
        key = f"{prefix}.{name}" if prefix else name
        values += _flat(key, value) if isinstance(value, dict) else [(key, value)]
    return values
