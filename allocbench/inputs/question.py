# SPDX-License-Identifier: Apache-2.0
"""Everything that a command is asked about, checked and loaded in one place."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from allocbench import allocators
from allocbench.allocators import human_bytes, spec
from allocbench.base.cards import label
from allocbench.base.error_text import ErrorText, MemoryDump
from allocbench.errors import UsageError, errors_naming
from allocbench.inputs import ALL, Unchosen
from allocbench.inputs.devices import SMALLEST_DEVICE, check_device
from allocbench.inputs.traces import AnyOrWhole, load_all, load_large
from allocbench.output.files import check_outputs
from allocbench.replays import experiment, recorded_settings
from allocbench.replays.runner import Runner, beside
from allocbench.workloads import AnyTrace, StreamedTrace, Trace
from allocbench.workloads.files import NotATraceError
from allocbench.workloads.formats import how_to_record
from allocbench.workloads.vocabulary import TraceError


@dataclass(frozen=True)
class Question(Generic[AnyOrWhole]):
    """What a command is asked about.

    traces: by name. specs: of the allocators. device: the given one; if nobody chose it, that on
    which the last request of a recording failed. notes: lines for the user on what the inputs
    decide. free: free and all bytes of a real GPU before anything is replayed, None for a simulated
    one.
    """

    traces: Mapping[str, AnyOrWhole]
    specs: Sequence[str]
    device: str
    notes: Sequence[str]
    free: tuple[int, int] | None

    @property
    def only(self) -> tuple[str, AnyOrWhole]:
        """The name and the trace of a question about a single workload."""
        ((name, trace),) = self.traces.items()
        return name, trace

    def runner(self: "Question[Trace]") -> Runner:
        """The runs of a single workload on a device of which libraries hold a part."""
        name, trace = self.only
        return Runner(trace, beside(self.device, trace), name)

    def notes_on_failures(self, failures: int) -> list[str]:
        """If requests failed: how much of a real GPU was free before."""
        if not failures or self.free is None:
            return []
        at_start, total = map(human_bytes, self.free)
        return [
            f"requests failed; when the replays began, {at_start} of the {total} of {self.device} "
            "were free"
        ]


def read(
    workloads: Sequence[str],
    specs: Sequence[str],
    device: str,
    *,
    option: str = "--allocators",
    model: str | None = None,
    outputs: Sequence[str | None] = (),
    pin: int | None = None,
    without_events: bool = False,
) -> Question[Trace]:
    """Check the device, the allocators and the output files, then load the traces.

    option: the option that gave the specs, for errors. model: see `traces.load`. outputs: files to
    be written, None for one that is not wanted. pin: a processor to stay on, or None.
    without_events: whether a recording without events, whose need is unknown, can be asked about.

    Raises UsageError, and as `traces.load_all`.
    """
    _check(workloads, specs, device, option, outputs, pin)
    traces = load_all(workloads, model)
    for name, trace in traces.items():
        if not without_events and not trace.coverage.events:
            raise UsageError(f"{name}: {trace.coverage.sentence}; {how_to_record(trace)}")
    return _question(traces, specs, device)


def read_any(
    workload: str,
    allocator: str,
    device: str,
    *,
    model: str | None = None,
    outputs: Sequence[str | None] = (),
) -> Question[Trace] | ErrorText | MemoryDump:
    """The same for one workload and one allocator, or the content of a file that is no trace.

    A recording without events can be asked about.
    """
    try:
        return read(
            [workload],
            [allocator],
            device,
            option="--allocator",
            model=model,
            outputs=outputs,
            without_events=True,
        )
    except TraceError as error:
        if not isinstance(error.__cause__, NotATraceError):
            raise
        return error.__cause__.content


def read_large(
    workload: str,
    allocator: str,
    device: str,
    *,
    model: str | None = None,
    outputs: Sequence[str | None] = (),
    pin: int | None = None,
    whole: bool = False,
) -> Question[AnyTrace]:
    """The same for one workload and one allocator; a large file stays where it is.

    whole: read a large file into memory nevertheless.
    """
    _check([workload], [allocator], device, "--allocator", outputs, pin)
    traces = load_all([workload], model) if whole else load_large(workload, model)
    return _question(traces, [allocator], device)


def allocator_specs(text: str, device: str | None = None) -> list[str]:
    """The specs of a comma-separated list, or of all strategies for "all".

    device: for "all", only strategies that work on it are returned; None returns all.

    `read` checks whether they can be made. Raises UsageError if a spec is given twice.
    """
    if text != ALL:
        specs = spec.split(text)
    elif device is None:
        specs = [info.name for info in allocators.strategies()]
    else:
        with errors_naming(f"--device {device}"):
            specs = allocators.names(allocators.make_device(device))
    for listed in specs:
        if specs.count(listed) > 1:
            raise UsageError(f"--allocators: '{listed}' is given twice")
    return specs


def check_specs(option: str, specs: Sequence[str], device: str) -> None:
    """Raise UsageError, naming the option, for a device or an allocator that cannot be made."""
    with errors_naming(f"--device {device}"):
        check_device(device)
    with errors_naming(option):
        experiment.check(specs, device)


def check_largest_request(question: Question[Trace]) -> None:
    """Raise UsageError if a single request is larger than the device.

    No allocator can serve such a trace, so there is nothing to compare. A capacity below the max
    load but above every request is allowed: failed requests are counted. So is the device on which
    the last request of a recording failed, which nobody chose.
    """
    capacity = allocators.make_device(question.device).capacity
    for workload, trace in question.traces.items():
        largest = int(trace.size.max())
        if largest > capacity != trace.coverage.card:
            event = int(np.argmax(trace.size))
            raise UsageError(
                f"--device {label(question.device)}: a capacity of {human_bytes(capacity)} is too"
                f" small for {workload}: event {event} (from 0) asks for {human_bytes(largest)}"
            )


def failed_on(device: str, traces: Mapping[str, AnyTrace]) -> str:
    """The device; if nobody chose it, that on which the last request of the recordings failed."""
    cards = {trace.coverage.card or 0 for trace in traces.values()}
    card = cards.pop()
    if not isinstance(device, Unchosen) or cards or card < SMALLEST_DEVICE:
        return device
    return f"sim:{card}"


def notes_on_device(device: str) -> list[str]:
    """What `failed_on` has chosen."""
    return [
        f"the device is {label(device)}: what was reserved or free when the last request failed;"
        " --device chooses another"
    ]


def notes_on_recordings(
    traces: Mapping[str, AnyTrace], specs: Sequence[str], device: str
) -> list[str]:
    """What recordings decide about allocators, and which traces stay in their files."""
    notes = []
    for name, trace in traces.items():
        notes += recorded_settings.told(name, trace, specs, device)
        if isinstance(trace, StreamedTrace):
            notes.append(
                f"{name}: {len(trace):,} events are not kept in memory; the file is read again "
                "for each replay. --time 0 and --no-min-capacity need fewer of them"
            )
    return notes


def _check(
    workloads: Sequence[str],
    specs: Sequence[str],
    device: str,
    option: str,
    outputs: Sequence[str | None],
    cpu: int | None,
) -> None:
    check_specs(option, specs, device)
    check_outputs(*outputs, inputs=workloads)
    if cpu is None:
        return
    try:
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError, ValueError) as error:
        raise UsageError(f"--pin {cpu}: this process cannot be pinned to that processor") from error


def _question(
    traces: Mapping[str, AnyOrWhole], specs: Sequence[str], device: str
) -> Question[AnyOrWhole]:
    chosen = failed_on(device, traces)
    notes = notes_on_device(chosen) if chosen != device else []
    notes += notes_on_recordings(traces, specs, chosen)
    return Question(traces, specs, chosen, notes, _free(chosen))


def _free(device: str) -> tuple[int, int] | None:
    opened = allocators.make_device(device)
    if not isinstance(opened, allocators.CudaDevice):
        return None
    with opened:
        return opened.free_bytes, opened.total
