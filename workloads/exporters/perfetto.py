# SPDX-License-Identifier: Apache-2.0
"""A replayed trace in Chrome's JSON trace format, which ui.perfetto.dev opens.

Requested, allocated and reserved bytes are counters over time, steps and phases are slices, and
failed requests are instant events. If the trace has no times, each event takes a microsecond.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from allocbench.workloads.exporters.pytorch_snapshot import ranges
from allocbench.workloads.exporters.replayed_trace import ReplayedTrace

_COUNTERS = ("requested", "allocated", "reserved")
_STEPS, _PHASES, _FAILURES, _POOLS = 1, 2, 3, 4  # threads


def write_perfetto(replayed: ReplayedTrace, sink: BinaryIO) -> None:
    """Write counters and slices to an open binary file."""
    trace = replayed.trace
    clock = "events" if trace.time_ns is None else "microseconds"
    about = {
        "workload": trace.name,
        "allocator": replayed.allocator,
        "device": replayed.device,
        "clock": clock,
    }
    sink.write(b'{"displayTimeUnit": "ms", "otherData": %b,' % json.dumps(about).encode())
    sink.write(b' "traceEvents": [\n')
    for number, event in enumerate(_events(replayed)):
        sink.write((b",\n" if number else b"") + json.dumps(event).encode())
    sink.write(b"\n]}\n")


def _events(replayed: ReplayedTrace) -> Iterator[dict[str, Any]]:
    name = f"{replayed.trace.name or 'trace'} through {replayed.allocator} on {replayed.device}"
    yield _metadata("process_name", 0, name)
    threads = {_STEPS: "steps", _PHASES: "phases", _FAILURES: "failed requests"}
    if replayed.trace.pools:
        threads[_POOLS] = "private pools"
    for thread, title in threads.items():
        yield _metadata("thread_name", thread, title)
    for counter in _COUNTERS:
        yield from _counts(replayed, counter)
    yield from _ranges(replayed)
    yield from _pool_events(replayed)
    yield from _failures(replayed)


def _counts(replayed: ReplayedTrace, counter: str) -> Iterator[dict[str, Any]]:
    values = getattr(replayed, counter)
    changed = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    for event in changed.tolist():
        yield {
            "ph": "C",
            "name": f"{counter} bytes",
            "pid": 1,
            "ts": float(replayed.time_us[event]),
            "args": {"bytes": int(values[event])},
        }


def _ranges(replayed: ReplayedTrace) -> Iterator[dict[str, Any]]:
    trace, time = replayed.trace, replayed.time_us
    after = float(time[-1]) + 1 if len(time) else 0.0
    for begin, end, label in ranges(replayed):
        until = float(time[end]) if end < len(time) else after
        yield {
            "ph": "X",
            "name": trace.labels[label],
            "pid": 1,
            "tid": _STEPS if label == trace.step_label else _PHASES,
            "ts": float(time[begin]),
            "dur": max(until - float(time[begin]), 0.0),
        }


def _pool_events(replayed: ReplayedTrace) -> Iterator[dict[str, Any]]:
    pools = replayed.trace.pools
    for event, op, pool in replayed.trace.pool_events():
        name = f"{op.replace('_', ' ')} {pools[pool - 1].name or pool}"
        yield _instant(replayed, event, _POOLS, name, {"pool": pool})


def _failures(replayed: ReplayedTrace) -> Iterator[dict[str, Any]]:
    for event in np.flatnonzero(replayed.failed).tolist():
        numbers = {
            "bytes": int(replayed.trace.size[event]),
            "reserved": int(replayed.reserved[event]),
            "capacity": replayed.capacity,
        }
        yield _instant(replayed, event, _FAILURES, "request failed", numbers)


def _instant(
    replayed: ReplayedTrace, event: int, thread: int, name: str, numbers: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "i",
        "s": "t",
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": float(replayed.time_us[event]),
        "args": numbers,
    }


def _metadata(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 1, "tid": thread, "args": {"name": name}}
