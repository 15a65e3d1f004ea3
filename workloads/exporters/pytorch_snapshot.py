# SPDX-License-Identifier: Apache-2.0
"""A replayed trace as a PyTorch memory snapshot, which pytorch.org/memory_viz opens.

The snapshot contains the segments and blocks at the end and, as its history, all allocs, frees,
failed requests and changes of the segments. A label of the trace appears as a stack frame; marks
become annotated ranges, and steps have the name that PyTorch's profiler gives them. `size` is the
requested size, as in PyTorch's own snapshots. Addresses are the simulated ones.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from allocbench.workloads._native import SMALL_REQUEST
from allocbench.workloads.exporters.replayed_trace import DeviceCall, ReplayedSegment, ReplayedTrace
from allocbench.workloads.pytorch_settings import stored
from allocbench.workloads.recording_hook import annotation
from allocbench.workloads.snapshot_format import ANNOTATION, BLOCK, EVENT, FRAME, SEGMENT
from allocbench.workloads.trace import ALLOC, FREE, MARK


def write_snapshot(replayed: ReplayedTrace, sink: BinaryIO) -> None:
    """Write a snapshot to an open binary file."""
    frames = _frames(replayed)
    snapshot = {
        "segments": [_segment(replayed, segment, frames) for segment in replayed.segments],
        "device_traces": [list(_events(replayed, frames))],
        "allocator_settings": {
            "allocbench": f"{replayed.allocator} on {replayed.device}",
            **({} if replayed.options is None else stored(replayed.options)),
        },
        "external_annotations": list(_annotations(replayed)),
    }
    pickle.dump(snapshot, sink, protocol=4)


_Frames = Callable[[int], list[dict[str, Any]]]


def _frames(replayed: ReplayedTrace) -> _Frames:
    """The stack frames of an event: one frame with the name of its label, or none."""
    label, labels = replayed.trace.label, replayed.trace.labels
    of = [[FRAME.filled(filename="", line=0, name=name)] if name else [] for name in labels]
    return lambda event: [] if event < 0 or label is None else of[label[event]]


def _segment(replayed: ReplayedTrace, segment: ReplayedSegment, frames: _Frames) -> dict[str, Any]:
    live = [block for block in segment.blocks if block.requested]
    stream, small, pool = segment.stream, segment.small, segment.pool
    if stream is None:
        stream = int(replayed.trace.stream[live[0].event]) if live else 0
    if pool is None:
        pool = replayed.trace.pool_of(live[0].event) if live else 0
    if small is None:
        small = all(block.size <= SMALL_REQUEST for block in segment.blocks)
    allocated = sum(block.size for block in live)
    blocks = [
        BLOCK.filled(
            address=block.address,
            size=block.size,
            requested_size=block.requested,
            state="active_allocated" if block.requested else "inactive",
            frames=frames(block.event),
        )
        for block in segment.blocks
    ]
    filled = SEGMENT.filled(
        device=0,
        address=segment.address,
        total_size=segment.size,
        stream=stream,
        segment_type="small" if small else "large",
        segment_pool_id=_pool_id(replayed, pool),
        is_expandable=segment.expandable,
        blocks=blocks,
    )
    return filled | {  # which memory_viz shows, and allocbench does not read
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": sum(block.requested for block in live),
        "frames": [],
    }


def _pool_id(replayed: ReplayedTrace, pool: int) -> tuple[int, int]:
    """PyTorch's id of a private pool, from its name where that is one."""
    if pool == 0:
        return (0, 0)
    first, _, second = replayed.trace.pools[pool - 1].name.partition(".")
    return (int(first), int(second)) if first.isdecimal() and second.isdecimal() else (0, pool)


def _events(replayed: ReplayedTrace, frames: _Frames) -> Iterator[dict[str, Any]]:
    """The history, which begins after the blocks that were taken over.

    Memory is obtained from the device before the alloc that needs it, and returned before such an
    alloc or after a free.
    """
    during: dict[int, list[DeviceCall]] = defaultdict(list)
    for device_call in replayed.device_calls:
        during[device_call.event].append(device_call)
    trace, failed, times = replayed.trace, replayed.failed, replayed.time_us.astype(int).tolist()
    pools = replayed.pools()
    columns = (trace.op, replayed.address, replayed.sizes(), trace.stream, failed)
    for event, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if event < replayed.taken_over:
            continue
        op, address, size, stream, has_failed = row

        def entry(
            action: str,
            address: int | None,
            size: int,
            stream: int = stream,
            time: int = times[event],
            event: int = event,
            device_free: int | None = None,
        ) -> dict[str, Any]:
            return EVENT.filled(
                action=action,
                addr=address,
                size=size,
                stream=stream,
                time_us=time,
                frames=frames(event),
                pool_id=None if pools is None else _pool_id(replayed, int(pools[event])),
                device_free=device_free,
            )

        if op == FREE and address:
            yield entry("free_requested", address, size)
            yield entry("free_completed", address, size)
        for device_call in during.pop(event, []):
            yield entry(device_call.action, device_call.address, device_call.size)
        if has_failed:
            free = replayed.capacity - int(replayed.reserved[event])
            yield entry("oom", None, size, device_free=free)
        elif op == ALLOC:
            yield entry("alloc", address, size)


def _annotations(replayed: ReplayedTrace) -> Iterator[dict[str, Any]]:
    """A range from each mark to the next one of its kind: steps, and phases within steps."""
    trace, times = replayed.trace, replayed.time_us.astype(int).tolist()
    step, steps = trace.step_label, 0
    for begin, end, label in ranges(replayed):
        name = f"ProfilerStep#{steps}" if label == step else trace.labels[label]
        steps += label == step
        for stage, event in (("START", begin), ("END", end)):
            time = times[event] if event < len(times) else (times[-1] + 1 if times else 0)
            yield ANNOTATION.filled(device=0, name=name, stage=stage, time_us=time)
    for event, op, pool in trace.pool_events():
        traits = trace.pools[pool - 1]
        name = annotation(op, _pool_id(replayed, pool), *traits.traits)
        for stage in ("START", "END"):
            yield ANNOTATION.filled(device=0, name=name, stage=stage, time_us=times[event])


def ranges(replayed: ReplayedTrace) -> Iterator[tuple[int, int, int]]:
    """The first event, the end (exclusive) and the label of each step and phase, in order of begin.

    A step ends at the next step, a phase at the next mark of any kind.
    """
    trace = replayed.trace
    marks = [n for n, op in enumerate(trace.op.tolist()) if op == MARK]
    next_step = next_mark = len(trace)
    closed = []
    for event in reversed(marks):
        label = int(trace.block[event])
        is_step = label == trace.step_label
        closed.append((event, next_step if is_step else next_mark, label))
        next_mark = event
        if is_step:
            next_step = event
    return reversed(closed)
