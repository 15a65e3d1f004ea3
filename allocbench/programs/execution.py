# SPDX-License-Identifier: Apache-2.0
"""Runs a program on the GPU of this machine, or on a null GPU, and records it."""

import itertools
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from allocbench.base.text import command_text
from allocbench.interrupts import Terminated
from allocbench.null_gpu import launch
from allocbench.null_gpu.launch import Limits
from allocbench.workloads import Trace, recording
from allocbench.workloads.recording import Recorded, RecordError

AMPLE = "1024TiB"
"""Memory of the null GPU for a program that needs more than the card's."""
AMPLE_EXPANDABLE = "512GiB"
"""The same with expandable segments: PyTorch takes addresses for 9/8 of the card for each pool of
blocks, and a null GPU has 4 TiB of addresses."""
WARM_UP = 1
"""Warm-up steps before the requested ones: the first creates the optimizer's state."""
_STDERR = 2  # the program's standard output goes there, because ours may be JSON
_INTERRUPTED = 130
_BY_SIGNAL, _SIGNALS = 128, frozenset(signal.Signals)
"""Exit codes of processes that a signal ended are above 128."""
_EXCEPTION = re.compile(r"(\[\w+\]: ?)?(?!.*ChildFailed|.*CalledProcess)[\w.]*(Error|Exception)\b")
"""The line of a traceback that names the exception, except for those of launchers."""
_BROKEN = re.compile(r"(?:\[\w+\]: ?)?(ConnectionResetError|BrokenPipeError|EOFError)\b")
"""That of a process that waits for another one, which has failed and has printed the cause."""
_LOGGED = re.compile(r"(?:\[\w+\]: ?)?\[?[IW]\d{4} ")
"""The beginning of a line that PyTorch's libraries log, such as one on a process group."""
_LAUNCHER = re.compile(r"E\d{4} .*torch/distributed/elastic/")
"""That of the line with which `torchrun` begins its report on a process that failed."""
_ABOVE = "what it printed is above"
_OF_GPUS = re.compile(r"\blib(cu|nccl|nv)\w*\.so|NVIDIA|CUDA")
_HIDDEN = (
    ". No process of it found the null GPU: Python's options -E and -I hide it, and so does an"
    " environment that the program replaces as a whole"
)
_TOO_FEW = ". {} has too few GPUs for the program: the option count=2 gives it two"

_MUCH = 0.01
"""A workspace of an unknown size matters from this share of the largest load."""


class ComputedValueError(RecordError):
    """A program failed, and a computed value that it read can be the reason."""


@dataclass(frozen=True)
class Execution:
    """One run. device: the null GPU, None for this machine's GPU.

    unknown: the note on reads of computed values, "" if none can be why it failed. shared: whether
    PyTorch waited for another stream before it reused a block. shapes: the lines where a shape
    depends on a mask of which nothing is known, with the numbers of reads. ooms: requests that
    PyTorch answered with OutOfMemoryError. forgone: convolutions that did without their workspace.
    """

    recorded: Recorded
    device: str | None
    notes: Sequence[str]
    unknown: str = ""
    shared: bool = False
    shapes: Mapping[str, int] = field(default_factory=dict)
    forgone: int = 0

    @property
    def ooms(self) -> int:
        """Number of requests that failed with an OutOfMemoryError."""
        traces = self.recorded.traces.values()
        return sum(trace.provenance.extra.get("other_events", {}).get("oom", 0) for trace in traces)

    @property
    def ample(self) -> str:
        """Memory of a null GPU that is enough for the program, if it has the addresses."""
        settings = (
            trace.provenance.extra.get("settings", {}) for trace in self.recorded.traces.values()
        )
        expandable = any(one.get("expandable_segments") == "true" for one in settings)
        return AMPLE_EXPANDABLE if expandable else AMPLE

    @property
    def complete(self) -> bool:
        """Whether allocbench ended each process that made steps, after some of these or a time.

        A shell script that expects what the program would have done later may then fail.
        """
        ends = [trace.coverage.ends for trace in self.recorded.traces.values() if trace.steps]
        return bool(ends) and all(end == "stopped" for end in ends)

    @property
    def failed(self) -> Mapping[str, Trace]:
        """The processes that ran out of memory and then made no step; without steps, no alloc."""
        traces = self.recorded.traces
        return {process: trace for process, trace in traces.items() if not _went_on(trace)}

    @property
    def recovered(self) -> bool:
        """Whether the program went on after each such error, such as with a smaller batch.

        It caught the error, or let a process end that tried a batch while another made steps.
        """
        traces, failed = self.recorded.traces, self.failed
        others = (trace.steps for process, trace in traces.items() if process not in failed)
        return self.recorded.code == 0 and (not failed or any(others))


def run(
    command: Sequence[str],
    name: str,
    device: str | None,
    limits: Limits,
    quiet: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Execution:
    """Run a command once; its standard output goes to standard error.

    name: of the traces. device: a null GPU, or None for this machine's GPU. limits: its steps are
    those after the warm-up; the others are for null GPUs. quiet: hide its output, except for the
    last line in the error if it fails. variables: environment variables in addition to those of
    this process.

    Raises RecordError if it cannot be started, fails other than by running out of memory, or
    records nothing, ComputedValueError if it fails and a computed value can be why;
    KeyboardInterrupt if it was interrupted; Terminated if this process got SIGTERM or SIGHUP;
    SpecError; NullGpuError.
    """
    limit = None if limits.steps is None else limits.steps + WARM_UP
    # The recording itself counts the steps.
    others = replace(limits, steps=None) if device is not None else Limits()
    with tempfile.TemporaryFile() as sink, launch.session(device, others) as session:
        recorded = recording.record(
            command,
            labels="lines",
            machine=session.machine,
            steps=limit,
            stdout=sink.fileno() if quiet else _STDERR,
            stderr=sink.fileno() if quiet else None,
            variables=variables,
        )
        sink.seek(0)
        printed = sink.read().decode(errors="replace").strip().splitlines()
    ran = Execution(
        _named(recorded, name, session.summary),
        device,
        (*session.notes, *_caught(recorded, printed if quiet else ())),
        session.reads,
        session.summary.shared,
        session.summary.shapes,
        session.summary.forgone,
    )
    said = _reason(printed) if quiet else _ABOVE
    if not session.found and _OF_GPUS.search(said):
        said += _HIDDEN
    elif device is not None and "invalid device ordinal" in said:
        said += _TOO_FEW.format(device)
    _check(ran, command, said)
    return ran


def _reason(printed: Sequence[str]) -> str:
    """What the null GPU refused, else the last line of an exception or an error, else the last."""
    printed = [*itertools.takewhile(lambda line: not _LAUNCHER.match(line), printed)] or printed
    named = [line for line in printed if _EXCEPTION.match(line)]
    named = [line for line in named if not _BROKEN.match(line)] or named
    named = [line for line in named if "the null GPU does not have" in line] or named
    said = [line for line in printed if re.search(r"\w", line) and not _LOGGED.match(line)]
    errors = [line for line in said if re.search(r"(^|: )error: ", line, re.I)]
    return (named or errors or said or ["it printed nothing"])[-1]


def _caught(recorded: Recorded, printed: Sequence[str]) -> list[str]:
    """A note on the exception that a program without steps printed, although it did not fail."""
    raised = [line for line in printed if _EXCEPTION.match(line)]
    traces = recorded.traces.values()
    went_on = any(trace.steps or trace.coverage.ends == "stopped" for trace in traces)
    if recorded.code or not raised or went_on:
        return []
    return [f"it made no optimizer step and did not fail, but printed {raised[-1]}"]


def _went_on(trace: Trace) -> bool:
    after = trace.provenance.extra.get("after_oom")
    return after is None or bool(after["steps"] if trace.steps else after["allocs"])


def _named(recorded: Recorded, name: str, summary: launch.Summary) -> Recorded:
    """With the names of the traces, what libraries held outside of PyTorch, and may ask for."""
    outside, workspace = summary.outside, summary.workspace

    def named(process: str, trace: Trace) -> Trace:
        whole = "-".join(filter(None, (name, process)))
        extra = {**trace.provenance.extra} | ({"outside": dict(outside)} if outside else {})
        provenance = replace(trace.provenance, name=whole, extra=extra)
        much = workspace > _MUCH * trace.max_load
        coverage = replace(trace.coverage, workspace=workspace if much else 0)
        return replace(trace, provenance=provenance, coverage=coverage)

    traces = {process: named(process, trace) for process, trace in recorded.traces.items()}
    return replace(recorded, traces=traces)


def _check(ran: Execution, command: Sequence[str], said: str) -> None:
    recorded, called = ran.recorded, command_text(command)
    if recorded.code == _INTERRUPTED:
        raise KeyboardInterrupt
    if recorded.signal is not None:
        raise Terminated(recorded.signal)
    if recorded.code and not ran.ooms and not ran.complete:
        values = f". If a computed value caused this, set it with --value: {ran.unknown}"
        why = said + (values if ran.unknown else "")
        made = ComputedValueError if ran.unknown else RecordError
        raise made(f"{called}: {_ended(recorded.code)}; {why}{_enough(recorded)}")
    if recorded.complaints:
        raise RecordError(f"{called}: a process was not recorded: {recorded.complaints[0]}")
    if not recorded.traces:
        raise RecordError(f"{called}: it allocated nothing on a GPU through PyTorch")


def _ended(code: int) -> str:
    number = code - _BY_SIGNAL
    named = f" ({signal.Signals(number).name})" if number in _SIGNALS else ""
    return f"exit code {code}{named}"


def _enough(recorded: Recorded) -> str:
    """How a program that failed after some optimizer steps can be asked about these."""
    made = min((trace.steps for trace in recorded.traces.values()), default=0)
    if made <= WARM_UP:
        return ""
    return f". It had made {made} optimizer steps: --steps {made - WARM_UP} ends it after these"
