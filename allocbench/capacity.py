# SPDX-License-Identifier: Apache-2.0
"""Capacities: the smallest device on which a trace completes, and one that holds it for sure."""

import allocators
from allocators import SpecError, spec
from workloads import Trace

STEP = 2 << 20
"""Bytes; capacities are searched in multiples of this."""
LIMIT = 1 << 50
"""Bytes; no capacity above this is tried."""


def min_capacity(
    trace: Trace, allocator: str, device: str, *, max_load: int, peak_reserved: int
) -> int | None:
    """Bytes of the smallest device on which every request of `trace` succeeds, or None.

    Bisection over multiples of STEP between two capacities. The lower one is the largest multiple
    below `max_load`, which no allocator can do with. The upper one is the first to complete of
    max(max_load, peak_reserved), rounded up to STEP, and its doublings; None when none up to
    LIMIT does. The trace completes on what is returned and fails on STEP less.

    An allocator may complete on one capacity and fail on a larger one (regions that grow with
    what is left, for example). Then the result is one such boundary, not always the lowest.

    `max_load` and `peak_reserved`, in bytes, are those of a replay of `trace`. Options of the
    specs `allocator` and `device`, other than the capacity, hold on every capacity; where the
    device or the allocator cannot be made the trace does not complete.
    """
    low = (max(1, max_load) - 1) // STEP * STEP
    high = -(-max(1, max_load, peak_reserved) // STEP) * STEP
    while not _completes(trace, allocator, device, high):
        low, high = high, 2 * high
        if high > LIMIT:
            return None
    while high - low > STEP:
        middle = (low + high) // (2 * STEP) * STEP
        if _completes(trace, allocator, device, middle):
            high = middle
        else:
            low = middle
    return high


def with_capacity(device: str, capacity: int) -> str:
    """The spec of the same device with another capacity in bytes; raises SpecError for no spec."""
    if _is_cuda(device):
        parsed, option = spec.parse(device, first="ordinal"), "limit"
    else:
        parsed, option = spec.parse(device, first="capacity"), "capacity"
    return str(spec.Spec(parsed.name, parsed.options | {option: str(capacity)}))


def roomy(device: str, trace: Trace) -> str:
    """The spec of the same device, with room for twice all that `trace` ever allocates.

    Twice, for what is lost where a block does not fit into the rest of a segment. A GPU is as large
    as it is.
    """
    if _is_cuda(device):
        return device
    needed = 2 * int(trace.size.sum()) + (1 << 40)
    return with_capacity(device, max(needed, allocators.make_device(device).capacity))


def _is_cuda(device: str) -> bool:
    return device.strip().partition(":")[0] == "cuda"


def _completes(trace: Trace, allocator: str, device: str, capacity: int) -> bool:
    try:
        made = allocators.make_device(with_capacity(device, capacity))
        return allocators.completes(trace, allocators.make(allocator, made))
    except SpecError:
        return False
