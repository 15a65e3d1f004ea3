# SPDX-License-Identifier: Apache-2.0
"""A recording compared with `caching`: the settings, the version, and the first difference.

A difference comes with its reason, as far as the segments of the replay show it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from allocbench import allocators
from allocbench.allocators import Segment, human_bytes
from allocbench.base.spec import Spec, parse
from allocbench.verification.agreement import (
    CAPACITY,
    Agreement,
    Call,
    CannotTellError,
    Compared,
    best,
    calls_of,
    compare,
)
from allocbench.workloads import ALLOC, TraceError, first_events
from allocbench.workloads.files import read_recording
from allocbench.workloads.pytorch_settings import WITHOUT_POOLS, PytorchRules, conf_of
from allocbench.workloads.recordings import Gaps, Recording
from allocbench.workloads.vocabulary import SeveralDevicesError

_SAID = {
    "segment_alloc": "obtains a segment of {size} at {at}",
    "segment_free": "returns a segment of {size} at {at}",
    "segment_map": "maps {size} at {at}",
    "segment_unmap": "unmaps {size} at {at}",
}


@dataclass(frozen=True)
class FirstDifference:
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


def first_difference(compared: Compared) -> FirstDifference | None:
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


def _contradiction(compared: Compared, gaps: Gaps) -> FirstDifference:
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
    return FirstDifference(
        kind,
        alloc,
        event,
        None if event is None else int(trace.size[event]),
        f"allocator {did} at {address:#x}",
        predicted,
        reason,
    )


def _unequal(compared: Compared, alloc: int) -> FirstDifference:
    trace = compared.recording.trace
    allocs = np.flatnonzero(trace.op == ALLOC)
    event = int(allocs[alloc]) if alloc < len(allocs) else None
    requested = None if event is None else int(trace.size[event])
    difference = partial(FirstDifference, alloc=alloc, event=event, requested=requested)
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
    allocators.replay(
        first_events(compared.recording.trace, event), allocator, samples=1, keep=True
    )
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


@dataclass(frozen=True)
class Verdict:
    """The result for one recording.

    file: its path. events: of its trace. version: of the rules that were applied; told: whether the
    user gave it, otherwise it is the one that agrees best. settings: the options of `caching` in
    the recording. unknown: why there is no result, or "". device: which one, if there are several.
    settings_recorded: whether it has settings, even if only the defaults.
    frees_missing, allocs_missing: how many events the recording lacks, by its contradictions.
    """

    file: str
    events: int = 0
    version: str = ""
    told: bool = False
    settings: Mapping[str, str] | None = None
    agreement: Agreement | None = None
    difference: FirstDifference | None = None
    unknown: str = ""
    device: str = ""
    settings_recorded: bool = True
    frees_missing: int = 0
    allocs_missing: int = 0

    @property
    def name(self) -> str:
        """The file's name, and the device if the file has several."""
        name = Path(self.file).name
        return f"{name} ({self.device})" if self.device else name

    @property
    def exit_code(self) -> int:
        """0 if everything is equal, 1 if not, 2 if that is unknown."""
        if self.agreement is None:
            return 2
        return 0 if self.agreement.equal and self.difference is None else 1

    def row(self) -> dict[str, Any]:
        """The verdict as plain values."""
        row: dict[str, Any] = {
            "recording": self.file,
            "device": self.device or None,
            "events": self.events,
            "verdict": ("equal", "different", "unknown")[self.exit_code],
            "version": self.version,
            "version_given": self.told,
            "settings": dict(self.settings or {}),
            "settings_recorded": self.settings_recorded,
            "frees_missing": self.frees_missing,
            "allocs_missing": self.allocs_missing,
            "reason": self.unknown,
        }
        if self.agreement:
            row |= asdict(self.agreement)
            del row["first_unequal"]
        row["first_difference"] = None
        if self.difference:
            row["first_difference"] = asdict(self.difference) | {"text": str(self.difference)}
        return row


def verify(
    path: Path, allocator: str = "caching", capacity: int | None = None, **options: str
) -> Verdict:
    """Compare a recording with `caching`.

    allocator: a spec of it; its options override those of the recording. capacity: bytes of the
    device, if the recording does not say. options: those of the format. A recording that cannot be
    read or compared also gives a verdict. Raises SpecError.
    """
    verdicts = verify_all(path, allocator, capacity, **options)
    if len(verdicts) > 1:
        devices = ", ".join(verdict.device for verdict in verdicts)
        return Verdict(str(path), unknown=f"holds the events of several devices: {devices}")
    return verdicts[0]


def verify_all(
    path: Path, allocator: str = "caching", capacity: int | None = None, **options: str
) -> list[Verdict]:
    """The verdict on each device that has events in a recording; else as `verify`."""
    try:
        recording = read_recording(path, **options)
    except (TraceError, OSError) as error:
        if isinstance(several := error.__cause__, SeveralDevicesError):
            return [
                replace(candidate, device=f"cuda:{device}")
                for device in several.devices
                for candidate in verify_all(path, allocator, capacity, device=str(device))
            ]
        return [Verdict(str(path), unknown=str(error).removeprefix(f"{path}: "))]
    spec = parse(allocator)
    if not recording.tells_settings and "conf" not in options and (conf := conf_of(spec.options)):
        return verify_all(path, allocator, capacity, conf=conf, **options)
    version_given = "version" in spec.options
    recorded = recording.tells_settings and "conf" not in spec.options
    settings = dict(recording.options) if recorded else {}
    verdict = Verdict(
        str(path),
        len(recording.trace),
        told=version_given,
        settings=settings,
        settings_recorded=recording.tells_settings,
        frees_missing=recording.gaps.frees,
        allocs_missing=recording.gaps.allocs,
    )
    return [_judged(verdict, recording, Spec(spec.name, settings | spec.options), capacity)]


def _judged(verdict: Verdict, recording: Recording, spec: Spec, capacity: int | None) -> Verdict:
    versions = [spec.options["version"]] if verdict.told else list(_versions(recording))
    specs = [str(Spec(spec.name, spec.options | {"version": candidate})) for candidate in versions]
    try:
        starts = list(_starts(recording))
        compared = best(
            compare(start, candidate, capacity) for candidate in _valid(specs) for start in starts
        )
    except CannotTellError as error:
        return replace(verdict, unknown=str(error))
    if not compared.agreement.equal and (lacking := _lacking(spec, recording, capacity)):
        return replace(verdict, unknown=lacking)
    version = parse(compared.agreement.allocator).options["version"]
    difference = first_difference(compared)
    if difference is None and not compared.agreement.compared:
        return replace(verdict, unknown="contains no alloc and no segment call to compare")
    return replace(verdict, version=version, agreement=compared.agreement, difference=difference)


def _lacking(spec: Spec, recording: Recording, capacity: int | None) -> str:
    """What affects the replay but is neither recorded nor given by the user, or ""."""
    name = "per_process_memory_fraction"
    if "garbage_collection_threshold" in spec.options and name not in spec.options:
        return (
            f"garbage_collection_threshold is a share of {name}, which the recording does not"
            f" contain: give --allocator caching:{name}=SHARE --capacity BYTES"
        )
    if name in spec.options and not (capacity or recording.capacity):
        return (
            f"{name} is a share of the GPU's memory, whose size the recording does not contain:"
            " give --capacity BYTES"
        )
    return ""


def _valid(specs: Sequence[str]) -> list[str]:
    """The specs whose version has their settings; raises SpecError if no version has."""
    accepted, wrong = [], None
    for spec in specs:
        try:
            allocators.make(spec, allocators.SimulatedDevice(CAPACITY))
        except allocators.SpecError as error:
            wrong = error
        else:
            accepted.append(spec)
    if wrong and not accepted:
        raise wrong
    return accepted


def _starts(recording: Recording) -> Iterator[Recording]:
    """The recording, and a variant with its first segments obtained in the opposite order.

    Recordings do not say in which order they were obtained.
    """
    yield recording
    layout = recording.trace.layout
    if layout is not None and len(layout.rank) > 1:
        turned = replace(layout, rank=layout.rank[::-1].copy())
        yield replace(recording, trace=replace(recording.trace, layout=turned))


def _versions(recording: Recording) -> Iterator[str]:
    """A version for each set of rules that `caching` implements, the most likely one first."""
    versions = [rules.version for rules in PytorchRules.sets()]
    versions.sort(key=WITHOUT_POOLS.__ne__)
    yield from reversed(versions) if recording.tells_pools else versions
