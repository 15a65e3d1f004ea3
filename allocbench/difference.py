# SPDX-License-Identifier: Apache-2.0
"""The first difference between a recording and a replay: where, what, and why if that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocbench import allocators
from allocbench.agreement import Call, Compared, calls_of, until
from allocbench.allocators import Segment, human_bytes
from allocbench.workloads import ALLOC
from allocbench.workloads.recordings import CALLS, Gaps

_SAID = {
    "segment_alloc": "obtains a segment of {size} at {at}",
    "segment_free": "returns a segment of {size} at {at}",
    "segment_map": "maps {size} at {at}",
    "segment_unmap": "unmaps {size} at {at}",
}


@dataclass(frozen=True)
class Difference:
    """The first difference between a replay and a recording.

    kind: "segment calls", "reserved bytes", "placement", "failed request", or, where the recording
    contradicts itself, "missing free" or "missing alloc". alloc: which alloc of the trace, from 0;
    event: which event of the trace, None after the last alloc. requested: bytes. recorded,
    predicted: what each did. reason: "" if unknown.
    """

    kind: str
    alloc: int
    event: int | None
    requested: int | None
    recorded: str
    predicted: str
    reason: str

    def __str__(self) -> str:
        """One line."""
        where = f"at alloc {self.alloc} (event {self.event}, {human_bytes(self.requested or 0)})"
        if self.event is None:
            where = "after the last alloc"
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{self.kind} {where}: the GPU's {self.recorded}, the replay {self.predicted}{reason}"
        )


def first_difference(compared: Compared) -> Difference | None:
    """The first difference or contradiction, or None when there is neither."""
    alloc, gaps = compared.agreement.first_unequal, compared.recording.gaps
    if alloc is None:
        return _contradiction(compared, gaps) if len(gaps) else None
    if len(before := gaps.before(alloc)):
        return _contradiction(compared, before)
    difference = _unequal(compared, alloc)
    if not len(around := gaps.around(alloc)):
        return difference
    missing = (
        f"the recording lacks the free of alloc {around.begun[0]}, whose block at "
        f"{int(around.address[0]):#x} is still alive in the replay"
    )
    reason = f"{difference.reason}; {missing}" if difference.reason else missing
    return replace(difference, reason=reason)


def _contradiction(compared: Compared, gaps: Gaps) -> Difference:
    """The first gap as a difference."""
    trace = compared.recording.trace
    allocs = np.flatnonzero(trace.op == ALLOC)
    begun, alloc, address = int(gaps.begun[0]), int(gaps.shown[0]), int(gaps.address[0])
    event = int(allocs[alloc]) if alloc < len(allocs) else None
    if begun < 0:
        kind = "missing alloc"
        did = "has a block"
        predicted, reason = "has none there", "the recording lacks the alloc of that block"
    else:
        kind = "missing free"
        did = "has no block" if event is None else "places a block"
        predicted = f"has the block of alloc {begun} there"
        reason = "the recording lacks the free of that block"
    return Difference(
        kind,
        alloc,
        event,
        None if event is None else int(trace.size[event]),
        f"allocator {did} at {address:#x}",
        predicted,
        reason,
    )


def _unequal(compared: Compared, alloc: int) -> Difference:
    trace = compared.recording.trace
    allocs = np.flatnonzero(trace.op == ALLOC)
    event = int(allocs[alloc]) if alloc < len(allocs) else None
    requested = None if event is None else int(trace.size[event])
    predicted_calls = [call for call in compared.replayed.calls if call[0] == alloc]
    all_recorded = compared.recorded_calls
    recorded = None if all_recorded is None else [c for c in all_recorded if c[0] == alloc]
    begin = int(allocs[alloc - 1]) + 1 if alloc else 0
    segments = _state(compared, len(trace) if event is None else event)
    if event is not None and compared.replayed.size[alloc] == 0:
        return Difference(
            "failed request",
            alloc,
            event,
            requested,
            f"allocator serves it at {compared.recording.address[alloc]:#x}",
            "has no memory for it",
            "the device of the replay refuses memory that the GPU granted",
        )
    if recorded is not None and recorded != predicted_calls:
        reason = _calls_reason(
            compared, recorded, predicted_calls, segments, _state(compared, begin), alloc
        )
        return Difference(
            "segment calls",
            alloc,
            event,
            requested,
            _told(recorded),
            _told(predicted_calls),
            reason,
        )
    assert event is not None
    truth, predicted = _reserved(compared, alloc)
    if truth != predicted:
        return Difference(
            "reserved bytes",
            alloc,
            event,
            requested,
            f"allocator holds {human_bytes(truth)}",
            human_bytes(predicted),
            "the recording obtained or gave back a segment that the replay did not, or the reverse",
        )
    address, other = int(compared.recording.address[alloc]), int(compared.replayed.address[alloc])
    return Difference(
        "placement",
        alloc,
        event,
        requested,
        f"allocator places it at {_place(address, segments)}",
        f"at {_place(other, segments)}",
        _placement_reason(address, other, int(compared.replayed.size[alloc]), segments),
    )


def _state(compared: Compared, event: int) -> list[Segment]:
    """The segments of the replay before an event."""
    allocator = allocators.make(compared.agreement.allocator, compared.device())
    allocators.replay(until(compared.recording.trace, event), allocator, samples=1, keep=True)
    return allocator.snapshot()


def _reserved(compared: Compared, alloc: int) -> tuple[int, int]:
    layout = compared.recording.trace.layout
    held, count = layout.reserved if layout else 0, len(compared.replayed.address)
    predicted = calls_of(compared.replayed.calls).reserved(count, held)
    recorded = compared.recording.reserved
    if recorded is None:
        assert compared.recording.calls is not None
        recorded = compared.recording.calls.reserved(count, held)
    return int(recorded[alloc]), int(predicted[alloc])


def _told(calls: Sequence[Call]) -> str:
    said = [
        _SAID[CALLS[kind]].format(size=human_bytes(size), at=f"{address:#x}")
        for _, kind, address, size in calls[:3]
    ]
    if len(calls) > 3:
        said.append(f"makes {len(calls) - 3} more calls")
    return "allocator " + " and ".join(said) if said else "makes no call to the device"


def _place(address: int, segments: Sequence[Segment]) -> str:
    for segment in segments:
        if segment.address <= address < segment.address + segment.size:
            return f"{address:#x} (byte {address - segment.address} of its segment)"
    return f"{address:#x} (in no segment that the replay holds)"


def _free_blocks(segments: Sequence[Segment]) -> dict[int, int]:
    """Bytes by address."""
    return {
        block.address: block.size
        for segment in segments
        for block in segment.blocks
        if not block.allocated
    }


def _placement_reason(address: int, other: int, granted: int, segments: Sequence[Segment]) -> str:
    free = _free_blocks(segments)
    if address not in free:
        around = [
            block
            for segment in segments
            for block in segment.blocks
            if block.address <= address < block.address + block.size
        ]
        if around and around[0].allocated:
            return "a block is still allocated there: its free is missing from the recording"
        if around:
            return "a free block contains it, but does not begin there"
        return "no memory is held there: a segment is missing from the recording"
    size, chosen = free[address], free.get(other)
    if chosen is None:
        return f"the replay did not choose the free block of {size} bytes there"
    if size == chosen:
        return (
            f"both are free blocks of {size} bytes: versions of PyTorch break this tie differently"
        )
    if size < granted:
        return f"the free block there has {size} bytes, too few for the {granted} of the block"
    return (
        f"the free block there has {size} bytes, that of the replay {chosen}: best fit takes the "
        "smaller one of a pool, so they are in other pools, or other settings apply"
    )


def _calls_reason(
    compared: Compared,
    recorded: Sequence[Call],
    predicted_calls: Sequence[Call],
    segments: Sequence[Segment],
    before: Sequence[Segment],
    alloc: int,
) -> str:
    gave = [
        call
        for call in recorded
        if call not in predicted_calls and CALLS[call[1]] == "segment_free"
    ]
    obtained = [
        call
        for call in recorded
        if call not in predicted_calls and CALLS[call[1]] == "segment_alloc"
    ]
    more = [call for call in predicted_calls if call not in recorded]
    gives = [call for call in more if CALLS[call[1]] == "segment_free"]
    gets = [call for call in more if CALLS[call[1]] == "segment_alloc"]
    if obtained and gets:
        return (
            f"segments of {obtained[0][3]} and {gets[0][3]} bytes: other settings or another "
            "version"
            if obtained[0][3] != gets[0][3]
            else "the segments lie at different addresses"
        )
    if gave or gives:
        held = {segment.address: segment for segment in before}
        busy = [c for c in gave if c[2] in held and any(b.allocated for b in held[c[2]].blocks)]
        if busy:
            return f"the segment at {busy[0][2]:#x} holds blocks in the replay: a free is missing"
        if gave:
            return (
                f"{len(gave)} free segments stay cached in the replay: a limit, a collection "
                "threshold or a refusal that the replay does not know"
            )
        return f"the recording keeps {len(gives)} segments that the replay gives back"
    kinds = {CALLS[call[1]].removeprefix("segment_") for call in (*recorded, *more)}
    if {"alloc", "map"} <= kinds:
        return "expandable_segments changed in between; only the last settings are recorded"
    if obtained:
        granted = int(compared.replayed.size[alloc]) if alloc < len(compared.replayed.size) else 0
        free = [size for size in _free_blocks(segments).values() if size >= granted > 0]
        if free:
            reason = (
                f"a free block of {min(free)} bytes is large enough in the replay; in the "
                "recording, it is in another pool, still in use by another stream, or settings "
                "forbid it"
            )
            unnamed = "; it does not name private pools whose memory was given back"
            return reason if compared.recording.tells_pools else reason + unnamed
        return "other settings or another version"
    if gets:
        address = (
            int(compared.recording.address[alloc]) if alloc < len(compared.recording.address) else 0
        )
        return (
            f"the recording places the block at {_place(address, segments)} without a new segment"
        )
    return "the mapped ranges differ: other settings or another version"
