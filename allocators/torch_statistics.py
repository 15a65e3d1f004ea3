# SPDX-License-Identifier: Apache-2.0
"""PyTorch's statistics of GPU memory, from a program's allocator.

PyTorch's own functions raise, or report 0, under a pluggable allocator. These report the same
values wherever the meaning is the same. What has no meaning here is 0: blocks in a small and a
large pool, inactive splits, and oversize blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from allocbench.allocators._core import Flow
from allocbench.allocators.programs import GpuUse, Program

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


def nested(use: GpuUse | None) -> dict[str, Any]:
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


def install(program: Program) -> None:
    """Let the functions of torch.cuda and torch.accelerator report a program's numbers."""

    def wanted(device: Any) -> int:
        return int(torch.cuda._utils._get_device_index(device, optional=True))

    def find(device: Any) -> GpuUse | None:
        ordinal = wanted(device)
        return next((use for use in program.uses() if use.ordinal == ordinal), None)

    def as_nested_dict(device: Any = None) -> dict[str, Any]:
        started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return nested(find(device)) if started else {}

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
