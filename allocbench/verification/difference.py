# SPDX-License-Identifier: Apache-2.0
"""The first difference between a recording and a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from allocbench import allocators
from allocbench.allocators import Segment, human_bytes
from allocbench.verification.agreement import Call, Compared, calls_of, until
from allocbench.verification.reasons import place, reason_of_calls, reason_of_placement
from allocbench.workloads import ALLOC
from allocbench.workloads.recordings import Gaps

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
    difference = partial(Difference, alloc=alloc, event=event, requested=requested)
    if event is not None and compared.replayed.size[alloc] == 0:
        return difference(
            "failed request",
            recorded=f"allocator serves it at {compared.recording.address[alloc]:#x}",
            predicted="has no memory for it",
            reason="the device of the replay refuses memory that the GPU granted",
        )
    recorded, predicted = (
        None if calls is None else [call for call in calls if call.before == alloc]
        for calls in (compared.recorded_calls, compared.replayed.calls)
    )
    segments = _state(compared, len(trace) if event is None else event)
    if recorded is not None and predicted is not None and recorded != predicted:
        before = _state(compared, int(allocs[alloc - 1]) + 1 if alloc else 0)
        return difference(
            "segment calls",
            recorded=_told(recorded),
            predicted=_told(predicted),
            reason=reason_of_calls(compared, alloc, recorded, predicted, before, segments),
        )
    assert event is not None
    held, held_in_replay = _reserved(compared, alloc)
    if held != held_in_replay:
        return difference(
            "reserved bytes",
            recorded=f"allocator holds {human_bytes(held)}",
            predicted=human_bytes(held_in_replay),
            reason="the recording obtained or gave back a segment that the replay did not, or the"
            " reverse",
        )
    address, other = int(compared.recording.address[alloc]), int(compared.replayed.address[alloc])
    granted = int(compared.replayed.size[alloc])
    return difference(
        "placement",
        recorded=f"allocator places it at {place(address, segments)}",
        predicted=f"at {place(other, segments)}",
        reason=reason_of_placement(address, other, granted, segments),
    )


def _state(compared: Compared, event: int) -> list[Segment]:
    """The segments of the replay before an event."""
    allocator = allocators.make(compared.agreement.allocator, compared.device())
    allocators.replay(until(compared.recording.trace, event), allocator, samples=1, keep=True)
    return allocator.snapshot()


def _reserved(compared: Compared, alloc: int) -> tuple[int, int]:
    """The bytes that the recorded allocator and the replay hold after an alloc."""
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
        _SAID[call.name].format(size=human_bytes(call.size), at=f"{call.address:#x}")
        for call in calls[:3]
    ]
    if len(calls) > 3:
        said.append(f"makes {len(calls) - 3} more calls")
    return "allocator " + " and ".join(said) if said else "makes no call to the device"
