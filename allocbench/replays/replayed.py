# SPDX-License-Identifier: Apache-2.0
"""Replay a trace and keep every address, every level of memory and every device call."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.allocators.replays import CALL_KINDS
from allocbench.allocators.spec import parse
from allocbench.base.trace import Layout
from allocbench.replays.recorded_settings import in_force
from allocbench.workloads import Trace
from allocbench.workloads.exporters.replayed_trace import (
    DeviceCall,
    ReplayedBlock,
    ReplayedSegment,
    ReplayedTrace,
)
from allocbench.workloads.trace import spans

_ACTIONS = {
    "malloc": "segment_alloc",
    "free": "segment_free",
    "map": "segment_map",
    "unmap": "segment_unmap",
}
_RELEASES = ("segment_free", "segment_unmap")


def replayed(trace: Trace, allocator: str, device: str) -> ReplayedTrace:
    """Replay a trace through new allocators, and keep its live blocks.

    It begins with the segments that a recording began with if the allocator can take them over. A
    request that fails is skipped, and so is the free of its block. Raises SpecError.
    """
    allocator = in_force(allocator, trace)
    inner = parse(allocator).layers[-1]
    levels_of = allocators.make(allocator, allocators.make_device(device))
    timeline = allocators.replay(trace, levels_of, samples=len(trace)).timeline
    memory = allocators.make_device(device)
    last = allocators.make(allocator, memory)
    detail = allocators.replay(trace, last, samples=1, keep=True, detail=True).detail
    assert detail is not None
    events = list(_device_calls(detail["device_calls"]))

    allocs, ends = spans(trace.op, trace.block)
    alloc_address = detail["placements"]["address"]
    freed = ends < len(trace)
    address = np.zeros(len(trace), np.uint64)
    address[allocs] = alloc_address
    address[ends[freed]] = alloc_address[freed]
    alloc_at = dict(zip(alloc_address[~freed].tolist(), allocs[~freed].tolist(), strict=True))
    first = trace.provenance.live_at_start if trace.layout is not None else 0
    taken_over = first if all(event.event >= first for event in events) else 0
    begun = _begun(trace.layout, events) if taken_over and trace.layout is not None else {}
    mapped = {event.address for event in events if event.action == "segment_map"}
    segments = [
        ReplayedSegment(
            segment.address,
            segment.size,
            [
                ReplayedBlock(
                    block.address,
                    block.size,
                    block.requested,
                    alloc_at[block.address] if block.requested else -1,
                )
                for block in segment.blocks
            ],
            **begun.get(segment.address, {"expandable": segment.address in mapped}),
        )
        for segment in last.snapshot()
    ]
    return ReplayedTrace(
        trace=trace,
        allocator=allocator,
        device=device,
        capacity=memory.capacity,
        address=address,
        **_levels(timeline, events, len(trace)),
        device_calls=events,
        segments=segments,
        taken_over=taken_over,
        options=inner.options if inner.name == "caching" else None,
    )


def _begun(layout: Layout, events: Sequence[DeviceCall]) -> dict[int, dict[str, Any]]:
    """What is known of the segments of a layout that were never returned, by address."""
    returned = {event.address for event in events if event.action in _RELEASES}
    columns = (layout.address, layout.stream, layout.small, layout.reservation, layout.pool)
    return {
        address: {"stream": stream, "small": small, "expandable": reservation > 0, "pool": pool}
        for address, stream, small, reservation, pool in zip(
            *(c.tolist() for c in columns), strict=True
        )
        if address not in returned
    }


def _device_calls(calls: Mapping[str, NDArray[Any]]) -> Iterator[DeviceCall]:
    """The successful calls; consecutive pages of one event are one range."""
    granted = calls["refused"] == 0
    names = ("event", "kind", "address", "size")
    last: DeviceCall | None = None
    for event, kind, address, size in zip(
        *(calls[name][granted].tolist() for name in names), strict=True
    ):
        action = _ACTIONS[CALL_KINDS[kind]]
        pages = action in ("segment_map", "segment_unmap")
        if last and pages and (event, action, address) == (*last[:2], last.address + last.size):
            last = last._replace(size=last.size + size)
            continue
        if last:
            yield last
        last = DeviceCall(event, action, address, size)
    if last:
        yield last


def _levels(
    timeline: Mapping[str, NDArray[Any]], device_calls: list[DeviceCall], count: int
) -> dict[str, NDArray[np.uint64]]:
    """Requested, allocated and reserved bytes after each event.

    The timeline has the levels after allocs and frees; a trim or a step changes reserved bytes too.
    """
    sampled = np.zeros(count, np.bool_)
    sampled[timeline["event"]] = True
    sample = np.cumsum(sampled)  # 0 before the first
    levels = {
        name: np.append(np.uint64(0), timeline[name])[sample]
        for name in ("requested", "allocated", "reserved")
    }
    change = np.zeros(count, np.int64)
    for event, action, _, size in device_calls:
        change[event] += -size if action in _RELEASES else size
    held = np.cumsum(change)
    held_at_sample = np.append(0, held[sampled])[sample]
    levels["reserved"] = (levels["reserved"].astype(np.int64) + held - held_at_sample).astype(
        np.uint64
    )
    return levels
