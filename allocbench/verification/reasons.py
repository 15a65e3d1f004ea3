# SPDX-License-Identifier: Apache-2.0
"""Why a replay differs from a recording, as far as the segments of the replay show it."""

from __future__ import annotations

from collections.abc import Sequence

from allocbench.allocators import Segment
from allocbench.verification.agreement import Call, Compared

_UNKNOWN = "other settings or another version"


def place(address: int, segments: Sequence[Segment]) -> str:
    """An address in words, with its distance from the start of its segment."""
    for segment in segments:
        if segment.address <= address < segment.address + segment.size:
            return f"{address:#x} (byte {address - segment.address} of its segment)"
    return f"{address:#x} (in no segment that the replay holds)"


def reason_of_placement(address: int, other: int, granted: int, segments: Sequence[Segment]) -> str:
    """Why a block of `granted` bytes is at another address than the recorded one.

    address: the recorded one. other: that of the replay. segments: of the replay, before the alloc.
    """
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


def reason_of_calls(
    compared: Compared,
    alloc: int,
    recorded: Sequence[Call],
    predicted: Sequence[Call],
    before: Sequence[Segment],
    segments: Sequence[Segment],
) -> str:
    """Why the device calls of an alloc differ from the recorded ones.

    alloc: which alloc of the trace, from 0. recorded, predicted: the calls since the alloc before.
    before, segments: the segments of the replay after the alloc before, and before this one.
    """
    obtained, gave = _obtained_and_given_back(recorded, predicted)
    obtains, gives = _obtained_and_given_back(predicted, recorded)
    if obtained and obtains:
        return _other_segment(obtained[0], obtains[0])
    if gave or gives:
        return _other_trim(gave, gives, before)
    if {"alloc", "map"} <= {call.name.removeprefix("segment_") for call in (*recorded, *predicted)}:
        return "expandable_segments changed in between; only the last settings are recorded"
    if obtained:
        return _needless_segment(compared, alloc, segments)
    if obtains:
        addresses = compared.recording.address
        address = int(addresses[alloc]) if alloc < len(addresses) else 0
        return f"the recording places the block at {place(address, segments)} without a new segment"
    return f"the mapped ranges differ: {_UNKNOWN}"


def _obtained_and_given_back(
    calls: Sequence[Call], others: Sequence[Call]
) -> tuple[list[Call], list[Call]]:
    """The calls that are not among the others: those that obtain and those that end a segment."""
    more = [call for call in calls if call not in others]
    obtained = [call for call in more if call.name == "segment_alloc"]
    return obtained, [call for call in more if call.name == "segment_free"]


def _other_segment(recorded: Call, predicted: Call) -> str:
    if recorded.size == predicted.size:
        return "the segments lie at different addresses"
    return f"segments of {recorded.size} and {predicted.size} bytes: {_UNKNOWN}"


def _other_trim(gave: Sequence[Call], gives: Sequence[Call], before: Sequence[Segment]) -> str:
    """gave: the segments that only the recorded allocator gave back; gives: only the replay."""
    busy = {
        segment.address for segment in before if any(block.allocated for block in segment.blocks)
    }
    for call in gave:
        if call.address in busy:
            return f"the segment at {call.address:#x} holds blocks in the replay: a free is missing"
    if gave:
        return (
            f"{len(gave)} free segments stay cached in the replay: a limit, a collection "
            "threshold or a refusal that the replay does not know"
        )
    return f"the recording keeps {len(gives)} segments that the replay gives back"


def _needless_segment(compared: Compared, alloc: int, segments: Sequence[Segment]) -> str:
    """Why the recorded allocator obtained a segment for an alloc, but the replay did not."""
    granted = int(compared.replayed.size[alloc]) if alloc < len(compared.replayed.size) else 0
    free = [size for size in _free_blocks(segments).values() if size >= granted > 0]
    if not free:
        return _UNKNOWN
    reason = (
        f"a free block of {min(free)} bytes is large enough in the replay; in the "
        "recording, it is in another pool, still in use by another stream, or settings "
        "forbid it"
    )
    if compared.recording.tells_pools:
        return reason
    return f"{reason}; it does not name private pools whose memory was given back"


def _free_blocks(segments: Sequence[Segment]) -> dict[int, int]:
    """Bytes by address."""
    return {
        block.address: block.size
        for segment in segments
        for block in segment.blocks
        if not block.allocated
    }
