# SPDX-License-Identifier: Apache-2.0
"""allocbench run: run any PyTorch program on a chosen allocator."""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from allocbench import allocators
from allocbench.allocators.spec import parse
from allocbench.base import children, units
from allocbench.base.text import command_text, one_line
from allocbench.commands import options
from allocbench.errors import UsageError, errors_naming
from allocbench.null_gpu.device import KIND
from allocbench.output.files import STDOUT, check_outputs
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import plain_table
from allocbench.reports.rows import results

if TYPE_CHECKING:
    from allocbench.programs.with_allocator import Report
    from allocbench.workloads import Trace
    from allocbench.workloads.recording import Machine

EXAMPLES = (
    "allocbench run --device null:h100 -- python train.py --epochs 1",
    "allocbench run --allocator bfc -- python train.py --epochs 1",
    "allocbench run --allocator caching:expandable_segments=true --record trace.parquet -- ./serve",
    "allocbench run --device null:rtx4090,memory=23.5GiB --allocator bfc -- python train.py",
    "allocbench run --allocator tlsf --poison -- torchrun --nproc-per-node 2 train.py",
)
NATIVE = "native"
"""PyTorch's own allocator, which is left in place."""
_HUGE = "1024TiB"  # device on which a spec is tried
_SETTINGS = "its settings are those of PYTORCH_ALLOC_CONF"


@dataclass(frozen=True)
class _Ran:
    """What a program did. code: as in a shell. traces: by path."""

    code: int
    reports: list[Report]
    traces: Mapping[str, Trace]
    native_only: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")],
    allocator: Annotated[
        str,
        typer.Option(
            metavar="native|SPEC",
            help=f"native is PyTorch's own allocator; {_SETTINGS}. SPEC is an allocator of "
            "allocbench with options; see `list`.",
        ),
    ] = NATIVE,
    record: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    poison: Annotated[bool, typer.Option("--poison")] = False,
    json: options.Json = None,
    device: options.NullDevice = None,
    steps: options.Steps = None,
    timeout: options.TimeLimit = None,
    value: options.Values = None,
) -> None:
    """Run an unmodified PyTorch program on any allocator and show what it did to the GPU.

    The output of the program is not changed: the table goes to standard error when the program
    ends. The exit code is that of the program.

    Options:
        command: The program.
        record: Write the requests of the program as a trace, .parquet or .csv. With several
            processes or GPUs, their numbers are inserted before the extension.
        poison: Fill freed memory with NaNs, to find code that reads it afterwards. Not possible
            with native.
    """
    from allocbench.null_gpu import launch  # imported late: --help stays fast
    from allocbench.output.files import check_trace_output, write_trace

    _check_allocator(allocator, poison=poison)
    if device is None:
        with errors_naming("run"):
            allocators.cuda_devices()
    if record is not None:
        if record == STDOUT:
            raise UsageError("--record -: standard output is the program's")
        check_trace_output(record)
    if json == STDOUT:
        raise UsageError("--json -: standard output is the program's")
    check_outputs(json, record)
    if why := children.refusal(command):
        raise UsageError(why)

    with (
        tempfile.TemporaryDirectory(prefix="allocbench-", ignore_cleanup_errors=True) as folder,
        launch.session(device, launch.Limits(steps, timeout, launch.values_of(value))) as session,
    ):
        machine = session.machine
        if allocator == NATIVE:
            ran = _run_native(command, folder, record, machine)
        else:
            ran = _run_on(allocator, command, folder, record, poison, machine)
    null_name = machine.name if machine else None
    for path, trace in ran.traces.items():
        write_trace(trace, path)
    if json:
        pids = [report.pid for report in ran.reports]
        names = [_name(one, command, several=pids.count(one.pid) > 1) for one in ran.reports]
        rows = [
            _row(report, name, allocator, null_name)
            for report, name in zip(ran.reports, names, strict=True)
        ]
        results.write(rows, json)
    _tell(ran, allocator, null_name, session.notes)
    raise typer.Exit(ran.code)


def _check_allocator(allocator: str, *, poison: bool) -> None:
    """Raise UsageError for a wrong spec, or for what PyTorch's own allocator cannot do."""
    if allocator == NATIVE:
        if poison:
            raise UsageError("--poison needs an allocator of allocbench: --allocator caching")
        return
    if allocator.startswith(f"{NATIVE}:"):
        raise UsageError(f"--allocator {allocator}: native takes no options; {_SETTINGS}")
    with errors_naming("--allocator"), suppress(allocators.Unavailable):  # the GPU may support it
        allocators.make(allocator, allocators.SimulatedDevice(_HUGE))


def _run_on(
    allocator: str,
    command: Sequence[str],
    folder: str,
    record: str | None,
    poison: bool,
    machine: Machine | None,
) -> _Ran:
    from allocbench.output.files import beside
    from allocbench.programs import with_allocator

    names = [layer.name for layer in parse(allocator).layers]
    spec = f"record:of={allocator}" if record and "record" not in names else allocator
    settings = with_allocator.RunSettings(spec, folder, record=record is not None, poison=poison)
    inherited = os.environ | (machine.environment if machine else {})
    code = children.run(command, with_allocator.environment(settings, inherited)).code
    reports = list(with_allocator.reports(folder))
    traces, null_name = {}, machine.name if machine else None
    for report in reports if record else ():
        part = f"{report.pid}-cuda{report.ordinal}" if len(reports) > 1 else ""
        traces[beside(str(record), part)] = _trace(report, command, null_name)
    return _Ran(code, reports, traces, with_allocator.native_only(folder))


def _run_native(
    command: Sequence[str], folder: str, record: str | None, machine: Machine | None
) -> _Ran:
    from allocbench.output.files import beside
    from allocbench.programs import with_allocator
    from allocbench.workloads import recording

    inherited = os.environ | (machine.environment if machine else {})
    environment = with_allocator.native_environment(folder, inherited)
    traces, complaints = {}, list[str]()
    if record is None:
        code = children.run(command, environment).code
    else:
        if machine is not None:
            machine = replace(machine, environment=environment)
        recorded = recording.record(command, machine=machine, variables=environment)
        code, complaints = recorded.code, list(recorded.complaints)
        traces = {beside(record, name): trace for name, trace in recorded.traces.items()}
    reports = list(with_allocator.reports(folder))
    return _Ran(code, reports, traces, complaints=[*complaints, *with_allocator.complaints(folder)])


def _tell(ran: _Ran, allocator: str, null_name: str | None, notes: Sequence[str]) -> None:
    out = Console(stderr=True, highlight=False)
    for report in ran.reports:
        out.print(_table(report, allocator, null_name))
    tell_notes(notes)
    lines = [f"a process was not reported: {one_line(line)}" for line in ran.complaints]
    lines += [
        f"the program used {feature}, which PyTorch supports only with its own allocator"
        for feature in ran.native_only
    ]
    if not ran.reports:
        none = "no process reported that it used the GPU; the program ended with exit code"
        lines.append(f"{none} {ran.code}")
    for line in lines:
        print(f"allocbench: {line}", file=sys.stderr)


def _trace(report: Report, command: Sequence[str], null_name: str | None) -> Trace:
    from allocbench.workloads import Provenance, Trace
    from allocbench.workloads.recording import program_name

    assert report.trace is not None
    columns: dict[str, Any] = dict(report.trace)
    return Trace(
        **columns,
        layout=None,
        labels=("step",),
        provenance=Provenance(
            name=program_name(command),
            kind="recorded",
            source=command_text(command),
            torch=report.torch.partition("+")[0],
            device=null_name or report.gpu,
            date=datetime.date.today().isoformat(),
        ),
    )


def _name(report: Report, command: Sequence[str], *, several: bool) -> str:
    """The workload of a row; with the GPU if the process used several."""
    from allocbench.workloads.recording import program_name

    gpu = f", cuda:{report.ordinal}" if several else ""
    return f"{program_name(command)} (process {report.pid}{gpu})"


def _row(report: Report, name: str, allocator: str, null_name: str | None) -> dict[str, object]:
    """A result row. The time of device calls on a null GPU says nothing about a GPU: no value."""
    row = dict(report.row)
    if null_name:
        row |= {"device_kind": KIND, "device_seconds": None, "device_seconds_source": None}
    return {
        "workload": name,
        "allocator": allocator,
        "device": null_name or f"cuda:{report.ordinal}",
        "events": report.extra["requests"] + report.extra["frees"],
        "blocks": report.extra["requests"],
        "candidate": True,
        **row,
    }


def _table(report: Report, allocator: str, null_name: str | None) -> Table:
    device = f"{null_name or f'cuda:{report.ordinal}'}, {report.gpu}"
    title = f"{allocator} on {device} (process {report.pid})"
    headings = "metric", "value", "exactly"
    table = plain_table(title, *headings, right=headings[1:], spare=headings[2:])
    extra = report.extra
    for name in ("requests", "frees", "deferred_frees"):
        if name in extra:
            table.add_row(name.replace("_", " "), f"{extra[name]:,}", str(extra[name]))
    if (used := extra.get("gpu_peak_used")) is not None:
        table.add_row("GPU memory used at peak", units.size(used), f"{used:,}")
    if graphs := extra.get("peak_reserved_for_graphs"):
        table.add_row("reserved for captured graphs", units.size(graphs), f"{graphs:,}")
    for column in results.COLUMNS:
        value = report.row.get(column.name)
        if null_name and column.name == "device_seconds":
            continue  # not a time of a GPU
        if column.unit and value is not None:
            source = " (measured)" if column.name == "device_seconds" else ""
            table.add_row(column.heading + source, column.text(value), column.exact(value))
    return table
