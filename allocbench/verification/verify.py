# SPDX-License-Identifier: Apache-2.0
"""A recording compared with `caching`: the settings, the version and the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from allocbench import allocators
from allocbench.base.spec import Spec, parse
from allocbench.verification.agreement import CAPACITY, Agreement, CannotTellError, best, compare
from allocbench.verification.difference import Difference, first_difference
from allocbench.workloads import TraceError
from allocbench.workloads.files import read_recording
from allocbench.workloads.pytorch_settings import WITHOUT_POOLS, PytorchRules, conf_of
from allocbench.workloads.recordings import Recording
from allocbench.workloads.vocabulary import SeveralDevicesError


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
    difference: Difference | None = None
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
