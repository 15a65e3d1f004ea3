# SPDX-License-Identifier: Apache-2.0
"""A program as a workload: the traces of its allocations, newly recorded or stored."""

import datetime
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from allocbench import __version__
from allocbench.allocators import SpecError
from allocbench.base import children, units
from allocbench.base.spec import parse
from allocbench.errors import UsageError
from allocbench.null_gpu import launch
from allocbench.null_gpu.device import LATE
from allocbench.null_gpu.device import read as read_device
from allocbench.null_gpu.launch import Limits
from allocbench.programs import LEAST_GROWTH, PREFIX
from allocbench.programs import recording_cache as kept
from allocbench.programs.execution import ComputedValueError, Execution, run
from allocbench.programs.recording_cache import Entry
from allocbench.workloads import MARK, Trace, recording
from allocbench.workloads.importers.pytorch_snapshot import DEFERRED
from allocbench.workloads.recording import RecordError, program_name

DEFAULT_DEVICE = "null:h200"
"""The default null GPU: the largest of the most common compute capability, 9.0."""
STEPS = 5
Tell = Callable[[str], None]


@dataclass(frozen=True)
class ProgramSettings:
    """How programs are run. tell: called with each note for the user.

    device: a null GPU; None for this machine's GPU, or `DEFAULT_DEVICE` without one. steps:
    optimizer steps to record after a warm-up; None: until the program ends. seconds: time limit of
    the program, or None. values: what lines of the program read on a null GPU, as in `Limits`.
    world: number of ranks that a distributed program sees; its first and its
    last are run, each alone. again: ignore stored recordings. ample: record a program that runs out
    of memory again, with as much memory as it requests. quiet: hide the output of programs.
    variables: environment variables in addition to those of this process.
    """

    device: str | None = None
    steps: int | None = STEPS
    seconds: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    world: int | None = None
    again: bool = False
    ample: bool = True
    quiet: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    tell: Tell = field(default=lambda line: None, compare=False)


_DEFAULT = ProgramSettings()
_settings: ContextVar[ProgramSettings] = ContextVar("settings", default=_DEFAULT)


@contextmanager
def asked(settings: ProgramSettings) -> Iterator[None]:
    """While active, programs that are loaded from their text run with these settings."""
    token = _settings.set(settings)
    try:
        yield
    finally:
        _settings.reset(token)


def asked_on(device: str | None, quiet: bool) -> AbstractContextManager[None]:
    """As `asked`, with the active settings except for these."""
    return asked(replace(_settings.get(), device=device, quiet=quiet))


@dataclass(frozen=True)
class ProgramWorkload:
    """A command line, and how to run it. name: of its traces; default: its script's.

    identity: what stands for the command where recordings are stored, if the same program does not
    always have the same command.
    """

    command: tuple[str, ...]
    settings: ProgramSettings = field(default_factory=ProgramSettings)
    name: str = ""
    identity: tuple[str, ...] = ()

    def __str__(self) -> str:
        return text_of(self.command)


def text_of(command: Sequence[str]) -> str:
    """A command as the text of a workload: "-- python train.py"."""
    return PREFIX + shlex.join(command)


def of_text(workload: str) -> ProgramWorkload:
    """The program of a workload's text, with the active settings; raises UsageError."""
    try:
        command = tuple(shlex.split(workload.removeprefix(PREFIX)))
    except ValueError as error:
        raise UsageError(f"{workload}: {error}") from error
    if not command:
        raise UsageError("--: no command follows; write -- python train.py")
    return ProgramWorkload(command, _settings.get())


def load(program: ProgramWorkload) -> Trace:
    """The trace of a program; if there are several, the one with the largest load.

    Raises UsageError, RecordError, SpecError, NullGpuError.
    """
    traces, _ = load_all(program)
    tell = program.settings.tell
    if len(traces) == 1:
        return next(iter(traces.values()))
    loads = {process: trace.max_load for process, trace in traces.items()}
    largest = max(loads, key=lambda process: loads[process])
    listed = ", ".join(f"{process} {units.size(load)}" for process, load in loads.items())
    gpu = largest.rpartition("-")[2]
    others = [process for process in loads if process != largest and process.endswith(f"-{gpu}")]
    shares = others and largest.startswith("process")  # ranks rarely share a GPU
    also = ". The others on its GPU need memory as well: see fit --other" if shares else ""
    tell(f"the largest load of each: {listed}; the answer is for {largest}{also}")
    return traces[largest]


def load_all(program: ProgramWorkload) -> tuple[Mapping[str, Trace], bool]:
    """The traces of a program by what distinguishes them ("" for a single one), and whether it ran
    out of memory. Raises as `load`.
    """
    if why := children.refusal(program.command):
        raise UsageError(why)
    devices = _devices(program.settings)
    entries = {
        rank: _one(program, device) for rank, device in zip(_ranks(program), devices, strict=True)
    }
    traces = {
        "-".join(filter(None, (rank, process))): trace
        for rank, entry in entries.items()
        for process, trace in entry.traces.items()
    }
    return traces, any(entry.out_of_memory for entry in entries.values())


def _ranks(program: ProgramWorkload) -> list[str]:
    world = program.settings.world
    return [""] if world is None else [f"rank{rank}" for rank in dict.fromkeys((0, world - 1))]


def _devices(settings: ProgramSettings) -> list[str | None]:
    """The device of each run: a single one, or those of the first and the last rank."""
    device = settings.device
    if device is None and (settings.world or not recording.has_cuda()):
        device = DEFAULT_DEVICE
    if settings.world is None:
        for option, given in (("--timeout", settings.seconds), ("--value", settings.values)):
            if device is None and given:
                raise SpecError(f"{option} is for null GPUs: --device null:h100")
        return [device]
    last = settings.world - 1
    return [f"{device},rank={rank},world={settings.world}" for rank in dict.fromkeys((0, last))]


def _one(program: ProgramWorkload, device: str | None) -> Entry:
    settings = program.settings
    name = kept.key(_known(program, device))
    entry = None if settings.again else kept.load(name)
    if entry is None:
        entry, files, changed = _recorded(program, device)
        if not changed:
            kept.keep(name, entry, files)
    else:
        settings.tell(
            f"answered from the recording of {entry.date}: nothing that it depends on has changed; "
            "--rerun runs the program again"
        )
    for line in entry.notes:
        settings.tell(line)
    return entry


def _known(program: ProgramWorkload, device: str | None) -> dict[str, object]:
    """Everything known before a program runs that affects what it allocates."""
    settings, command = program.settings, program.command
    # Not what a link leads to: the Python of every virtual environment may be a link to the same.
    executable = Path(shutil.which(command[0]) or command[0]).absolute()
    if device is None:
        driver = Path("/proc/driver/nvidia")
        told = [driver / "version", *sorted(driver.glob("gpus/*/information"))]
        machine: object = [path.read_text(encoding="utf-8") for path in told if path.exists()]
    else:
        core, described = launch.core().stat(), read_device(device)
        machine = [described.name, described.settings(), core.st_size, core.st_mtime_ns]
    return {
        "version": __version__,
        "command": program.identity or command,
        "executable": [str(executable), executable.stat().st_mtime_ns],
        "folder": os.getcwd(),
        "files": kept.files_of(program.identity or command),
        "environment": {**kept.lasting(os.environ), **settings.variables},
        "machine": machine,
        "steps": settings.steps,
        "seconds": settings.seconds,
        "values": dict(settings.values),
        "ample": settings.ample,
    }


def _recorded(program: ProgramWorkload, device: str | None) -> tuple[Entry, set[str], set[str]]:
    """A new recording, the files that it depends on, and those of them that it changed itself."""
    settings, command = program.settings, program.command
    notes = []

    limits = Limits(settings.steps, settings.seconds, settings.values)

    def run_on(device: str | None, share: float = limits.share) -> Execution:
        name = program.name or program_name(command)
        chosen = replace(limits, share=share)
        return run(command, name, device, chosen, settings.quiet, settings.variables)

    started = time.time_ns()
    try:
        ran = run_on(device)
    except ComputedValueError as error:
        limits = replace(limits, number=1.0)
        settings.tell(f"{error}. It is run again, and reads 1 instead of 0")
        try:
            ran = run_on(device)
        except RecordError:
            raise error from None
    out_of_memory = ran.ooms > 0
    if ran.failed and ran.recovered:
        ended = " and ".join(_process(name, trace) for name, trace in ran.failed.items())
        notes.append(
            f"{ended} ran out of memory and ended; the program went on and ended with exit code 0:"
            " the answer is for its other processes"
        )
        others = {name: one for name, one in ran.recorded.traces.items() if name not in ran.failed}
        ran = replace(ran, recorded=replace(ran.recorded, traces=others))
    elif ran.ooms and ran.recovered:
        what = f"it ran out of memory ({_failed(ran)}), caught the error and went on"
        if ran.forgone:
            many = f"{ran.forgone} convolution{'s' * (ran.forgone > 1)}"
            what = f"{many} found no memory for a workspace and went on without it, more slowly"
        notes.append(
            f"{what}: the answer is for what it then did; name a larger card with --device to see"
            " it with more memory"
        )
    elif ran.ooms and device is not None and settings.ample:
        notes.append(
            f"it ran out of memory on {read_device(device).name}, and was recorded again with as"
            " much memory as it requests"
        )
        ample = parse(device, first="card")
        ample.options["memory"] = ran.ample
        again = run_on(str(ample))
        if again.ooms and not again.recovered and not ran.recorded.code:
            notes[-1] = (
                f"it ran out of memory on {read_device(device).name}, and with"
                f" {units.size(read_device(str(ample)).memory)}, too, without an error of its own:"
                " it may take all that there is. The answer is for this card"
            )
        else:
            ran = again
    if ran.ooms and not ran.recovered:
        notes.append(f"it ran out of memory: {_failed(ran)}; its later requests are not known")
    notes += _told(ran)
    if ran.recorded.code and ran.complete:
        notes.append(f"the command then ended with exit code {ran.recorded.code}")
    traces = ran.recorded.traces
    if settings.ample:
        traces, held = _held(ran, run_on)
        notes += held
        traces, filled = _filled(ran, traces, run_on)
        notes += filled
    date = datetime.datetime.now().isoformat(" ", "minutes")
    files, changed = kept.read_and_changed(ran.recorded.opened, started)
    if changed:
        notes.append(
            f"files that it had read then changed ({units.names(sorted(changed))}), so the next"
            " question runs it again"
        )
    files |= {*kept.files_of(command), *ran.recorded.files}
    return Entry(traces, notes, date, out_of_memory), files, changed


def _held(
    ran: Execution, run_on: Callable[[str], Execution]
) -> tuple[Mapping[str, Trace], list[str]]:
    """The traces of a run, and notes, where a null GPU reused blocks of other streams at once.

    The program is run again, and these blocks are held until it next waits for the GPU. The
    coverage of each trace then says how much that needs.
    """
    traces, device = dict(ran.recorded.traces), ran.device
    if device is None or not ran.shared or read_device(device).events == LATE:
        return traces, []
    late = parse(device, first="card")
    late.options["events"] = LATE
    lines = list[str]()
    for process, again in run_on(str(late)).recorded.traces.items():
        trace, blocks = traces.get(process), again.provenance.extra.get(DEFERRED)
        if trace is None or not blocks:
            continue
        load, size = max(trace.max_load, again.max_load), units.size(blocks["bytes"])
        coverage = replace(trace.coverage, shared=blocks["bytes"], shared_load=load)
        traces[process] = replace(trace, coverage=coverage)
        places = ", ".join(f"{place} {units.size(size)}" for place, size in blocks["places"])
        lines.append(
            f"{units.count(blocks['blocks'], 'block')} ({size} in all) were used on another stream:"
            f" {places or 'their lines are not known'}. --device {read_device(str(late)).name}"
            " holds them until the program next waits for the GPU"
        )
    return traces, lines


def _filled(
    ran: Execution, traces: Mapping[str, Trace], run_on: Callable[[str, float], Execution]
) -> tuple[Mapping[str, Trace], list[str]]:
    """The traces of a run, and notes, where shapes depend on masks of which nothing is known.

    The program is run again, and the masks select all. The coverage of each trace then says how
    much that needs.
    """
    if ran.device is None or not ran.shapes:
        return traces, []
    ample = parse(ran.device, first="card")
    ample.options["memory"] = ran.ample
    try:
        full = run_on(str(ample), 1.0).recorded.traces
    except RecordError as error:
        return traces, [f"with masks of computed values that select all, it did not run: {error}"]
    ordered = sorted(ran.shapes, key=lambda site: (-ran.shapes[site], site))
    lines = " ".join(dict.fromkeys(map(launch.place_of, ordered)))
    found = dict(traces)
    for process, trace in traces.items():
        load = full[process].max_load if process in full else 0
        if load > trace.max_load:
            coverage = replace(trace.coverage, masks=lines, masks_load=load)
            found[process] = replace(trace, coverage=coverage)
    return found, []


def _failed(ran: Execution) -> str:
    return f"{ran.ooms} request{'s' * (ran.ooms > 1)} failed"


def _process(name: str, trace: Trace) -> str:
    """The name of a process, with its command."""
    command = trace.provenance.extra.get("process")
    return f"{name} ({shlex.join(command)})" if command else name


def _told(ran: Execution) -> list[str]:
    """Notes on a run for the user, one per line."""
    lines = []
    for process, trace in ran.recorded.traces.items():
        where = f"{process} on " if process else "on "
        first, *more = sentences(steps(trace), trace.coverage.ends == "stopped")
        lines += [f"{where}{trace.provenance.device}: {first}", *more]
    return [*lines, *ran.notes]


@dataclass(frozen=True)
class Steps:
    """The optimizer steps of a trace. Bytes of live requested memory.

    peaks: the largest load from the end of the previous step (or the start of the trace) to the end
    of each step. ends: the load at the end of each step. after: the largest load after the last
    step, or 0.
    """

    peaks: tuple[int, ...]
    ends: tuple[int, ...]
    after: int

    @property
    def grew(self) -> int:
        """Bytes by which the peak of the last step exceeds that of every earlier one."""
        if len(self.peaks) < 2:
            return 0
        return max(0, self.peaks[-1] - max(self.peaks[:-1]))

    @property
    def kept(self) -> int:
        """The fewest bytes that any step except the first leaves behind: a leak, or a cache.

        0 if fewer than two such steps can be compared with the one before.
        """
        grown = np.diff(self.ends[1:])
        return max(0, int(grown.min())) if len(grown) > 1 else 0


def steps(trace: Trace) -> Steps:
    """The steps of a trace in which the marks named "step" end the optimizer steps."""
    load = trace.load
    marks = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label)).tolist()
    starts = [0, *marks][: len(marks)]
    after = load[marks[-1] :] if marks else load
    return Steps(
        peaks=tuple(int(load[a : b + 1].max()) for a, b in zip(starts, marks, strict=True)),
        ends=tuple(int(load[mark]) for mark in marks),
        after=int(after.max(initial=0)),
    )


def sentences(steps: Steps, stopped: bool) -> list[str]:
    """Notes on the recorded steps for the user, one per line.

    stopped: whether allocbench ended the program, after some of its steps or a time.
    """
    seen = len(steps.peaks)
    if not seen:
        how = "was stopped before its first" if stopped else "ran to the end without an"
        return [f"it {how} optimizer step"]
    count = f"{seen} optimizer step{'s' * (seen > 1)}"
    top = max(steps.peaks)
    where = steps.peaks.index(top) + 1
    warm_up = "the first a warm-up" if seen > 1 else "which is a warm-up"
    if steps.grew >= LEAST_GROWTH:
        more = ": try more --steps" if stopped else ""
        peak = f"memory still grew in the last one, by {units.size(steps.grew)}{more}"
    elif where < seen:
        peak = f"the highest load, {units.size(top)}, came in step {where}, and no later step"
        peak += " needed more"
    else:
        peak = f"the highest load is {units.size(top)}"
    lines = [f"{count}, {warm_up}; {peak}"]
    if steps.kept >= LEAST_GROWTH:
        lines.append(
            f"every step leaves {units.size(steps.kept)} or more behind: a leak, or a cache"
        )
    if steps.after >= top + LEAST_GROWTH:
        lines.append(
            f"the highest load, {units.size(steps.after)}, came after the last step: evaluation, "
            "or a checkpoint"
        )
    if stopped:
        lines.append(
            "it was stopped there: evaluation, checkpoints and longer sequences that come later"
            " were not seen"
        )
    return lines
