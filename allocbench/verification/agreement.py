# SPDX-License-Identifier: Apache-2.0
"""How far an allocator agrees with a recording of another."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.allocators import RecordedDevice
from allocbench.workloads import ALLOC, Trace
from allocbench.workloads.recordings import CALLS, Calls, Recording

CAPACITY = 1 << 40
"""Bytes of the device if a recording does not say: more than any GPU has."""

_ROUNDS = 4  # of replays to find out where the segments of a profiler trace were


class Call(NamedTuple):
    """A device call. before: the number of earlier allocs. kind: index into CALLS. size: bytes."""

    before: int
    kind: int
    address: int
    size: int

    @property
    def name(self) -> str:
        """Its kind as in CALLS."""
        return CALLS[self.kind]


class CannotTellError(ValueError):
    """Why a recording and a replay cannot be compared; one line."""


@dataclass(frozen=True)
class Agreement:
    """How far a replay agrees with a recording: counts of allocs and calls since it began.

    segment_calls: those of the recording, None if it has none; _predicted: those of the replay;
    _equal: those that both made at the same alloc, with equal addresses and sizes. peaks: bytes.
    first_unequal: the first alloc (from 0, of all in the trace) that differs in the call before it,
    the reserved bytes after it or its address; None if all agree.
    """

    allocator: str
    allocs: int
    reserved_equal: int
    placed_equal: int
    segment_calls: int | None
    segment_calls_predicted: int
    segment_calls_equal: int | None
    peak_reserved_recorded: int
    peak_reserved_predicted: int
    first_unequal: int | None

    @property
    def compared(self) -> int:
        """How many allocs and segment calls, recorded or predicted, there were to compare."""
        return self.allocs + (self.segment_calls or 0) + self.segment_calls_predicted

    @property
    def equal(self) -> bool:
        """Whether the replay did exactly what the recorded allocator did."""
        return self.first_unequal is None


@dataclass(frozen=True, eq=False)
class Replayed:
    """A replay of m allocs: address and size, int64 (m,), and its calls in order."""

    address: NDArray[np.int64]
    size: NDArray[np.int64]
    calls: list[Call]


@dataclass(frozen=True, eq=False)
class Compared:
    """An agreement with both sides: what was recorded, and what a replay on `device_calls` did."""

    agreement: Agreement
    recording: Recording
    replayed: Replayed
    device_calls: Calls
    capacity: int

    @property
    def recorded_calls(self) -> list[Call] | None:
        """The calls of the recording, merged like those of the replay."""
        return None if self.recording.calls is None else joined(_rows(self.recording.calls))

    def device(self) -> RecordedDevice:
        """A new device that answers like the recorded one."""
        calls = self.device_calls
        return RecordedDevice(self.capacity, calls.kind, calls.address, calls.size)


def compare(recording: Recording, spec: str, capacity: int | None = None) -> Compared:
    """Replay a recording through the allocator of a spec, and compare.

    capacity: bytes of the device, instead of those of the recording. Raises CannotTellError if the
    replay cannot begin where the recording began, and SpecError.
    """
    if recording.unknown:
        raise CannotTellError(recording.unknown)
    size = capacity or recording.capacity or CAPACITY
    calls = recording.calls
    if calls is None:
        calls = _calls_found(recording, spec, size)
    device = RecordedDevice(size, calls.kind, calls.address, calls.size)
    replayed = replay(recording.trace, spec, device)
    return Compared(_agreement(recording, spec, replayed), recording, replayed, calls, size)


def replay(trace: Trace, spec: str, device: allocators.Device) -> Replayed:
    """Replay a trace through a new allocator.

    Raises CannotTellError if it cannot begin with the trace's layout, or if the addresses of the
    device contradict each other.
    """
    try:
        result = allocators.replay(trace, allocators.make(spec, device), samples=4, detail=True)
    except (allocators.BadFree, allocators.InvariantViolation) as error:
        raise CannotTellError(
            f"{spec} cannot continue at the recorded addresses: {error}"
        ) from error
    assert result.detail is not None
    placements, calls = result.detail["placements"], result.detail["device_calls"]
    if (layout := trace.layout) is not None:
        blocks = len(layout.block_address)
        adopted = np.array_equal(placements["address"][:blocks], layout.block_address)
        if not adopted or np.any(calls["event"] < blocks):
            raise CannotTellError(f"{spec} cannot take over what the program held when it began")
    return Replayed(
        placements["address"].astype(np.int64),
        placements["size"].astype(np.int64),
        _served_calls(trace, calls),
    )


def joined(calls: Iterable[Call]) -> list[Call]:
    """Calls in order; simultaneous ones of a kind sorted by address, adjacent ranges merged."""
    calls_joined: list[Call] = []
    for _, group in groupby(calls, key=lambda call: (call.before, call.kind)):
        merged: list[Call] = []
        for call in sorted(group):
            last = merged[-1] if merged and call.name in ("segment_map", "segment_unmap") else None
            if last and last.address + last.size == call.address:
                merged[-1] = last._replace(size=last.size + call.size)
            else:
                merged.append(call)
        calls_joined += merged
    return calls_joined


def _served_calls(trace: Trace, calls: Mapping[str, NDArray[Any]]) -> list[Call]:
    """The calls that the device of a replay served."""
    served = calls["refused"] == 0
    event = calls["event"][served].astype(np.int64)
    before = np.cumsum(trace.op == ALLOC)[event] - (trace.op[event] == ALLOC)
    columns = (before, calls["kind"][served], calls["address"][served], calls["size"][served])
    return joined(map(Call, *(column.tolist() for column in columns)))


def _rows(calls: Calls) -> Iterable[Call]:
    columns = (calls.before, calls.kind, calls.address, calls.size)
    return map(Call, *(column.tolist() for column in columns))


def calls_of(rows: Iterable[Call]) -> Calls:
    """Calls as columns."""
    before, kind, address, size = np.array(list(rows), np.uint64).reshape(-1, 4).T
    return Calls(kind.astype(np.uint8), address.copy(), size.copy(), before.astype(np.int64))


def _calls_found(recording: Recording, spec: str, capacity: int) -> Calls:
    """The calls that a recording without them must have made, if the allocator is the same.

    A replay shows which allocs share a segment; the recorded address of the first of them shows
    where the segment was. If that changes the replay, it is repeated.
    """
    calls = calls_of([])
    for _ in range(_ROUNDS):
        device = RecordedDevice(capacity, calls.kind, calls.address, calls.size)
        replayed = replay(recording.trace, spec, device)
        moved = [
            call._replace(address=_recorded_begin(recording, replayed, call))
            for call in replayed.calls
            if call.name == "segment_alloc"
        ]
        if calls_of(moved).address.tolist() == calls.address.tolist():
            break
        calls = calls_of(moved)
    return calls


def _recorded_begin(recording: Recording, replayed: Replayed, call: Call) -> int:
    """The recorded address of the segment that a replay obtained with a call."""
    begin, _, address, size = call
    count = 1  # most often the next alloc is the one for which the segment was obtained
    while begin < len(replayed.address):
        addresses = replayed.address[begin : begin + count]
        inside = np.flatnonzero((addresses >= address) & (addresses < address + size))
        if len(inside):
            first = begin + int(inside[0])
            return int(recording.address[first]) - (int(replayed.address[first]) - address)
        begin, count = begin + count, 2 * count
    return address


def _agreement(recording: Recording, spec: str, replayed: Replayed) -> Agreement:
    trace, count = recording.trace, len(replayed.address)
    first = trace.provenance.live_at_start
    held = trace.layout.reserved if trace.layout else 0
    predicted = calls_of(replayed.calls)
    reserved = recording.reserved
    recorded_peak = None if reserved is None else int(reserved.max(initial=0))
    calls_equal = calls_recorded = None
    unequal = np.zeros(count + 1, np.bool_)
    if recording.calls is not None:
        reserved = recording.calls.reserved(count, held)
        recorded_peak = recording.calls.peak(held)
        recorded, replayed_calls = Counter(joined(_rows(recording.calls))), Counter(replayed.calls)
        calls_recorded = recorded.total()
        calls_equal = (recorded & replayed_calls).total()
        for before, *_ in (recorded - replayed_calls) + (replayed_calls - recorded):
            unequal[before] = True
    assert reserved is not None
    assert recorded_peak is not None
    same_bytes = predicted.reserved(count, held) == reserved
    same_place = replayed.address == recording.address.astype(np.int64)
    unequal[:-1] |= ~same_bytes | ~same_place
    unequal[:first] = False
    return Agreement(
        allocator=spec,
        allocs=count - first,
        reserved_equal=int(same_bytes[first:].sum()),
        placed_equal=int(same_place[first:].sum()),
        segment_calls=calls_recorded,
        segment_calls_predicted=len(replayed.calls),
        segment_calls_equal=calls_equal,
        peak_reserved_recorded=recorded_peak,
        peak_reserved_predicted=predicted.peak(held),
        first_unequal=int(unequal.argmax()) if unequal.any() else None,
    )


def best(candidates: Iterable[Compared]) -> Compared:
    """The replay that agrees best; the first one in case of a tie."""

    def key(compared: Compared) -> tuple[bool, int, int, int]:
        agreement = compared.agreement
        calls = agreement.segment_calls_equal or 0
        return agreement.equal, agreement.reserved_equal, calls, agreement.placed_equal

    chosen: Compared | None = None
    for compared in candidates:
        if chosen is None or key(compared) > key(chosen):
            chosen = compared
        if chosen.agreement.equal:
            break
    assert chosen is not None
    return chosen
