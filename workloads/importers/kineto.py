# SPDX-License-Identifier: Apache-2.0
"""The memory events of a PyTorch profiler trace (Kineto, Chrome's JSON format) as a trace.

`torch.profiler.profile(profile_memory=True)` writes an instant event named "[memory]" for each
alloc (Bytes above 0) and free (below 0). On a GPU, Bytes is the size of the block after PyTorch's
rounding: allocated bytes, not requested bytes. The label of an alloc is the innermost operator that
ran on its thread. Annotated ranges become marks at their beginning, "ProfilerStep#3" a "step". The
streams in the trace do not concern memory, so all events are on stream 0.

The option `device` selects one of several devices: the number of a GPU, a name such as "cuda:1", or
"cpu". The default is the only GPU, or the CPU if no GPU has events.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocbench.base.trace import Layout
from allocbench.workloads._native import SMALL_REQUEST, SMALL_SEGMENT, PytorchSettings
from allocbench.workloads.coverage import UNSEEN, Coverage
from allocbench.workloads.formats import SNAPSHOT_INSTEAD
from allocbench.workloads.importers.addresses import (
    AddressedEvents,
    Blocks,
    Start,
    assemble,
    gaps_of,
    marks_before,
    none,
)
from allocbench.workloads.importers.json_elements import TruncatedError, elements
from allocbench.workloads.importers.labels import (
    BACKWARD,
    OPTIMIZER_ENDS,
    is_update,
    marks_of,
    only_creates,
)
from allocbench.workloads.recordings import Recording, with_gaps
from allocbench.workloads.sorting import stable_order
from allocbench.workloads.trace import MAX_SIZE, Provenance, Trace, TraceError

_Bytes = NDArray[np.int64]
_JUMP = "Total Allocated does not follow from Bytes at memory event {}"


class _Beginning(NamedTuple):
    """What a trace whose events contain allocated and reserved bytes began with.

    unknown: why that is not known, or "". live: blocks that lived from the start to the end.
    segments: addresses of all segments, if they are known and there were some.
    """

    coverage: Coverage
    unknown: str = ""
    live: Blocks = none()
    segments: NDArray[np.uint64] = np.empty(0, np.uint64)

    def layout(self, _events: AddressedEvents, initial: Blocks) -> Start:
        """The layout of the segments, given the blocks that were alive at the start."""
        count = len(self.segments)
        if not count or len(initial.address) != len(self.live.address):
            return Start()  # some were freed, and their addresses are known
        return Start(
            Layout(
                address=self.segments,
                size=np.full(count, SMALL_SEGMENT, np.uint64),
                stream=np.zeros(count, np.uint16),
                small=np.ones(count, np.bool_),
                reservation=np.zeros(count, np.uint64),
                rank=np.arange(count, dtype=np.uint32),
                block_address=initial.address,
                block_size=initial.granted,
            )
        )


def _beginning(
    events: AddressedEvents, allocated: _Bytes, reserved: _Bytes, label: int
) -> _Beginning:
    """If bytes were allocated before the first event, the process began before the trace. The
    layout then follows only in the simplest case: segments of 2 MiB at multiples of 2 MiB, which
    are filled from the front without gaps.

    label: that of memory whose blocks have no events.
    """
    freed = _freed_at_first(events)
    if not len(reserved) or reserved.min() < 0 or allocated.min() < 0:
        unknown = "its events do not contain Total Allocated and Total Reserved"
        return _Beginning(Coverage(begins="later", ends="open", held=freed, live=freed), unknown)
    change = np.where(events.is_alloc, 1, -1) * events.size.astype(np.int64)
    jumps = np.flatnonzero(np.diff(allocated) != change[1:])
    before, at_start = int(allocated[0] - change[0]), int(reserved[0])
    level = np.cumsum(change) + freed
    # Where events are missing, the load reaches the largest total, and nothing above it.
    unseen = int(allocated.max() - level.max() if len(jumps) else allocated[0] - level[0])
    is_first = before == 0 and bool(events.is_alloc[0])
    new = is_first and at_start <= _first_segment(change[0])
    coverage = Coverage(
        begins="start" if new else "later",
        ends="open",
        held=0 if new else at_start,
        live=max(0, before),
        unseen=max(0, unseen),
        reserved=int(reserved[-1]),
        contradiction=_JUMP.format(jumps[0] + 1) if len(jumps) else "",
    )
    if not len(jumps):
        if is_first:
            return _Beginning(coverage)
        level_ends = int(np.argmax(reserved != reserved[0])) or len(reserved)
        segment = events.address // SMALL_SEGMENT * SMALL_SEGMENT
        begins = np.unique(segment[:level_ends])
        if len(begins) * SMALL_SEGMENT == reserved[0]:
            order = np.argsort(events.address)
            lowest = events.address[order][np.searchsorted(segment[order], begins)]
            filled = lowest - begins  # one block in place of the unknown ones in each segment
            if events.is_alloc[:level_ends].all() and int(filled.sum()) == before:
                live = _unseen(begins[filled > 0], filled[filled > 0], label)
                return _Beginning(coverage, "", live, begins)
    unknown = coverage.contradiction or (
        f"{before} bytes were allocated before its first event, and it does not show their"
        " addresses; a memory snapshot does"
    )
    if not coverage.unseen:
        return _Beginning(coverage, unknown)
    # one block for all memory whose blocks have no events, at an address that none has
    free = np.setdiff1d(np.arange(len(events) + 1, dtype=np.uint64), events.address)[:1]
    return _Beginning(coverage, unknown, _unseen(free, [coverage.unseen], label))


def _unseen(address: NDArray[np.uint64], sizes: ArrayLike, label: int) -> Blocks:
    """Blocks in place of those that have no events."""
    size, count = np.array(sizes, np.uint64), len(address)
    return Blocks(address, size, np.zeros(count, np.int64), np.full(count, label, "u4"), size)


def _freed_at_first(events: AddressedEvents) -> int:
    """Bytes of the blocks of which the events have only the free."""
    order = stable_order(events.address)
    address = events.address[order]
    first = order[np.append(True, address[1:] != address[:-1])[: len(order)]]
    return int(events.size[first[~events.is_alloc[first]]].sum())


def _first_segment(size: int) -> int:
    """The most bytes that a new allocator reserves for its first request."""
    page = SMALL_SEGMENT if size <= SMALL_REQUEST else PytorchSettings({}).large_segment
    return -(-int(size) // page) * page


_FIRST_MEMBER = re.compile(
    rb'\{\s*"(?:schemaVersion|deviceProperties|distributedInfo|displayTimeUnit)"'
)
"""How the profiler begins a file; the groups of many ranks may fill megabytes before the events."""
_BACKWARD = re.compile(r"^autograd::engine::|Backward\d*$")
"""Operators that run a node of the autograd graph."""
_CPU = "cpu"
_TYPES = {0: _CPU, 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 18: "ipu"} | {
    19: "mtia",
    20: "privateuse1",
}
_LATEST = MAX_SIZE // 1000  # us
_Thread = tuple[Any, Any]
_Numbers = np.ndarray[Any, np.dtype[np.uint32]]


def is_profile(head: bytes) -> bool:
    """Whether a file with this beginning is a trace in Chrome's JSON format."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return b'"traceEvents"' in text or _FIRST_MEMBER.match(text) is not None
    return text.startswith(b"[") and b'"ph"' in text


def read(file: BinaryIO, path: Path, *, device: str | int | None = None) -> Trace:
    """Read the memory events of one device of an open profiler trace.

    Raises TraceError if the file is not JSON or has no memory events, if events have no addresses,
    and if the device is missing or ambiguous.
    """
    return read_recording(file, path, device=device).trace


def read_recording(file: BinaryIO, path: Path, *, device: str | int | None = None) -> Recording:
    """Read a trace with the reserved bytes in its events; raises like `read`."""
    profile, cut = _Profile(), {}
    try:
        for event in elements(file, "traceEvents", profile.see_member):
            if isinstance(event, dict):
                profile.see(event)
    except TruncatedError:
        if not profile.devices:
            raise
        cut["note"] = "the file ends in the middle; the events after that are missing"
    if profile.without_address and not profile.devices:
        raise TraceError(
            f"its {profile.without_address:,} memory events have no addresses, so frees "
            f"cannot be matched with allocs; {SNAPSHOT_INSTEAD}"
        )
    chosen = _choose(device, profile.devices)
    memory = profile.devices[chosen]
    order = np.argsort(memory.columns[0], kind="stable")
    time, address, size, allocated, reserved = memory.columns[:, order]
    labels = {"": 0}
    label, kind = (column[order] for column in profile.labels(memory, labels))
    events = AddressedEvents(
        is_alloc=size > 0,
        address=address.astype(np.uint64),
        size=np.abs(size).astype(np.uint64),
        stream=np.zeros(len(size), np.int64),
        label=label,
        time_ns=time,
        labels=tuple(labels),
        names={"kind": kind} if kind.any() else {},
        marks=marks_before(time, marks_of(profile.annotations)),
    )
    sizes = "requested" if chosen == _CPU else "allocated"
    extra = {"format": "PyTorch profiler trace", "sizes": sizes} | cut
    provenance = Provenance.of_file(path, device=chosen, extra=extra)
    if chosen == _CPU:
        unknown = "its events are those of the CPU, which has no caching allocator"
        result = assemble(events, provenance)
        began = result.trace.provenance.live_at_start
        coverage = Coverage(begins="later" if began else "start", ends="open")
        return Recording(replace(result.trace, coverage=coverage), result.address, unknown=unknown)
    start = _beginning(events, allocated, reserved, len(labels))
    if len(start.live.address):
        events = replace(events, labels=(*labels, UNSEEN))
    result = assemble(events, provenance, start.live, start.layout)
    kept = np.diff(result.allocs_before) > 0
    at_start = np.full(result.trace.provenance.live_at_start, reserved[0])
    gaps = gaps_of(events, result.allocs_before)
    return Recording(
        replace(result.trace, coverage=with_gaps(start.coverage, gaps)),
        result.address,
        reserved=np.concatenate([at_start, reserved[kept]]),
        capacity=profile.capacity.get(chosen.rpartition(":")[2]),
        unknown=start.unknown,
        gaps=gaps,
    )


@dataclass
class _Memory:
    """The memory events of one device: five numbers and the thread of each."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    thread: list[_Thread] = field(default_factory=list)

    @property
    def columns(self) -> NDArray[np.int64]:
        """int64 (5, n): time in ns, address, size, and bytes allocated and reserved after it."""
        return np.asarray(self.numbers).reshape(-1, 5).T


class _Profile:
    """The relevant events: memory by device, operators by thread, and annotations."""

    def __init__(self) -> None:
        self.devices: dict[str, _Memory] = defaultdict(_Memory)
        self.annotations: list[tuple[int, str]] = []
        self.capacity: dict[str, int] = {}  # bytes, by the number of a GPU
        self.without_address = 0  # memory events
        self._operators: dict[_Thread, list[tuple[int, int, str]]] = defaultdict(list)

    def see_member(self, name: str, value: Any) -> None:
        """Store the relevant part of a member other than the events."""
        for device in value if name == "deviceProperties" and isinstance(value, list) else ():
            if isinstance(device, dict) and type(device.get("totalGlobalMem")) is int:
                self.capacity[str(device.get("id"))] = device["totalGlobalMem"]

    def see(self, event: dict[str, Any]) -> None:
        """Store the relevant part of an event."""
        name, category, phase = event.get("name"), event.get("cat"), event.get("ph")
        if name == "[memory]":
            self._see_memory(event)
        elif phase == "X" and isinstance(name, str):
            if category == "user_annotation":
                self.annotations.append((_time(event), name))
                if is_update(name):
                    end = _time(event) + _nanoseconds(event.get("dur", 0), event)
                    self.annotations.append((end, OPTIMIZER_ENDS))
            elif category in ("cpu_op", "Operator"):
                begin, duration = _time(event), event.get("dur", 0)
                if duration != duration:  # NaN of an operator that did not end
                    return
                end = begin + _nanoseconds(duration, event)
                self._operators[_thread(event)].append((begin, end, name))

    def labels(self, memory: _Memory, labels: dict[str, int]) -> tuple[_Numbers, _Numbers]:
        """The label and the kind of each event of a device; new ones are added to `labels`."""
        times, _, sizes, *_ = memory.columns.tolist()
        label_numbers, kinds = np.zeros((2, len(times)), np.uint32)
        events: dict[_Thread, list[int]] = defaultdict(list)
        for n, thread in enumerate(memory.thread):
            if sizes[n] > 0:
                events[thread].append(n)
        for thread, numbers in events.items():
            operators = sorted(
                self._operators.get(thread, []), key=lambda operator: (operator[0], -operator[1])
            )
            numbers.sort(key=times.__getitem__)
            position = 0
            computing, creating, nodes = (list[tuple[int, int, str]]() for _ in range(3))
            for n in numbers:
                now = times[n]
                while position < len(operators) and operators[position][0] <= now:
                    operator = operators[position]
                    (creating if only_creates(operator[2]) else computing).append(operator)
                    if _BACKWARD.search(operator[2]):
                        nodes.append(operator)
                    position += 1
                # Those that end below the last one wait.
                for running in (computing, creating, nodes):
                    while running and running[-1][1] < now:
                        running.pop()
                label = next((running[-1][2] for running in (computing, creating) if running), "")
                label_numbers[n] = labels.setdefault(label, len(labels))
                if nodes:
                    kinds[n] = labels.setdefault(BACKWARD, len(labels))
        return label_numbers, kinds

    def _see_memory(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        if not isinstance(args, dict) or "Bytes" not in args:
            return
        if "Addr" not in args:
            self.without_address += 1
            return
        size, address = _whole(args, "Bytes"), _whole(args, "Addr")
        if size == 0:
            return
        kind, number = _whole(args, "Device Type", 0), _whole(args, "Device Id", -1)
        name = _TYPES.get(kind, f"device{kind}")
        memory = self.devices[name if name == _CPU else f"{name}:{number}"]
        totals = (_whole(args, f"Total {what}", -1) for what in ("Allocated", "Reserved"))
        memory.numbers.extend((_time(event), address, size, *totals))
        memory.thread.append(_thread(event))


def _thread(event: dict[str, Any]) -> _Thread:
    return str(event.get("pid")), str(event.get("tid"))


def _time(event: dict[str, Any]) -> int:
    return _nanoseconds(event.get("ts"), event)


def _nanoseconds(microseconds: Any, event: dict[str, Any]) -> int:
    """Convert a number, or a text with one, which some programs write."""
    try:
        value = float(microseconds)
    except (TypeError, ValueError, OverflowError):
        value = -1.0
    if not 0 <= value < _LATEST:
        raise TraceError(f"an event named {str(event.get('name'))[:40]!r} has no valid time")
    return round(value * 1000)


def _whole(args: dict[str, Any], name: str, default: int = 0) -> int:
    value = args.get(name, default)
    if type(value) is not int or abs(value) > MAX_SIZE:
        raise TraceError(f"a memory event has {name} {str(value)[:40]!r}")
    return value


def _choose(device: str | int | None, devices: dict[str, _Memory]) -> str:
    """The name of the selected device."""
    if not devices:
        raise TraceError("holds no memory events; profile with profile_memory=True")
    listed = ", ".join(f"{name} ({len(devices[name].thread):,} events)" for name in sorted(devices))
    if device is not None:
        named = [n for n in devices if str(device) in (n, n.partition(":")[2])]
        if len(named) != 1:
            raise TraceError(f"has no device '{device}'; its devices are {listed}")
        return named[0]
    gpus = [name for name in devices if name != _CPU]
    if len(gpus) > 1:
        raise TraceError(
            f"holds the events of several devices: {listed}; choose one: FILE:device=N"
        )
    return gpus[0] if gpus else _CPU
