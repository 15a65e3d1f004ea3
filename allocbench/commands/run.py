# SPDX-License-Identifier: Apache-2.0
"""allocbench run: run any PyTorch program on a chosen allocator."""

from __future__ import annotations

import datetime
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from allocbench import allocators, options
from allocbench.allocators.spec import parse
from allocbench.errors import UsageError, errors_naming
from allocbench.null_gpu.device import KIND
from allocbench.outputs import STDOUT, check_outputs
from allocbench.reports import results, units
from allocbench.terminal import plain_table

if TYPE_CHECKING:
    from allocbench.running import Report
    from allocbench.workloads import Trace

EXAMPLES = (
    "allocbench run --allocator bfc -- python train.py --epochs 1",
    "allocbench run --allocator caching:expandable_segments=true --record trace.parquet -- ./serve",
    "allocbench run --device null:rtx4090,memory=23.5GiB --allocator bfc -- python train.py",
    "allocbench run --allocator tlsf --poison -- torchrun --nproc-per-node 2 train.py",
)
_HUGE = "1024TiB"  # device on which a spec is tried


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The program.")],
    allocator: Annotated[
        str, typer.Option(metavar="SPEC", help="An allocator with options; see `list`.")
    ],
    record: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the requests of the program as a trace, .parquet or .csv. With several "
            "processes or GPUs, their numbers are inserted before the extension.",
        ),
    ] = None,
    poison: Annotated[
        bool,
        typer.Option(
            "--poison", help="Fill freed memory with NaNs, to find code that reads it afterwards."
        ),
    ] = False,
    json: options.Json = None,
    device: options.NullDevice = None,
    steps: options.Steps = None,
    time_limit: options.TimeLimit = None,
    value: options.Values = None,
) -> None:
    """Run an unmodified PyTorch program on any allocator and show what it did to the GPU.

    The output of the program is not changed: the table goes to standard error when the program
    ends. The exit code is that of the program.
    """
    from allocbench import running  # imported late: --help stays fast
    from allocbench.null_gpu import launch
    from allocbench.traces import check_trace_output, write_trace

    _check_allocator(allocator, on_this_machine=device is None)
    if record is not None:
        if record == STDOUT:
            raise UsageError("--record -: standard output is the program's")
        check_trace_output(record)
    if json == STDOUT:
        raise UsageError("--json -: standard output is the program's")
    check_outputs(json, record)
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: no such program")

    names = [layer.name for layer in parse(allocator).layers]
    spec = f"record:of={allocator}" if record and "record" not in names else allocator
    with (
        tempfile.TemporaryDirectory(prefix="allocbench-") as folder,
        launch.session(device, launch.limits_of(steps, time_limit, value)) as session,
    ):
        settings = running.Settings(spec, folder, record=record is not None, poison=poison)
        machine = session.machine.environment if session.machine else {}
        done = subprocess.run(command, env=running.environment(settings, os.environ | machine))
        found = list(running.reports(folder))
        unavailable = running.native_only(folder)
    null_name = session.machine.name if session.machine else None
    if record:
        for path, report in zip(_paths(record, found), found, strict=True):
            write_trace(_trace(report, command, null_name), path)
    if json:
        pids = [report.pid for report in found]
        names = [_name(report, command, several=pids.count(report.pid) > 1) for report in found]
        results.write(
            [
                _row(report, name, allocator, null_name)
                for name, report in zip(names, found, strict=True)
            ],
            json,
        )
    out = Console(stderr=True, highlight=False)
    for report in found:
        out.print(_table(report, allocator, null_name))
    for line in session.notes:
        print(f"note: {line}", file=sys.stderr)
    for feature in unavailable:
        print(
            f"allocbench: the program used {feature}, which PyTorch supports only with its own "
            "allocator",
            file=sys.stderr,
        )
    if not found:
        ended = f"ended with exit code {done.returncode}"
        print(f"allocbench: no process of the program used the GPU; it {ended}", file=sys.stderr)
    raise typer.Exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


def _check_allocator(allocator: str, *, on_this_machine: bool) -> None:
    """Raise UsageError for a wrong spec, or if there is no GPU."""
    with errors_naming("--allocator"), suppress(allocators.Unavailable):  # the GPU may support it
        allocators.make(allocator, allocators.SimulatedDevice(_HUGE))
    if on_this_machine:
        with errors_naming("run"):
            allocators.cuda_devices()


def _paths(record: str, found: Sequence[Report]) -> list[str]:
    """A path for each report; with several reports, process and GPU are part of the name."""
    path = Path(record)
    if len(found) <= 1:
        return [record] * len(found)
    return [
        str(path.with_name(f"{path.stem}-{report.pid}-cuda{report.ordinal}{path.suffix}"))
        for report in found
    ]


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
            source=shlex.join(command),
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
        "device": _device(report, null_name),
        "events": report.extra["requests"] + report.extra["frees"],
        "blocks": report.extra["requests"],
        "candidate": True,
        **row,
    }


def _device(report: Report, null_name: str | None) -> str:
    return f"cuda:{report.ordinal}" if null_name is None else null_name


def _table(report: Report, allocator: str, null_name: str | None) -> Table:
    device = f"{_device(report, null_name)}, {report.gpu}"
    title = f"{allocator} on {device} (process {report.pid})"
    table = plain_table(title, "metric", "value", "exactly", right=("value", "exactly"))
    extra = report.extra
    for name in ("requests", "frees", "deferred_frees"):
        table.add_row(name.replace("_", " "), f"{extra[name]:,}", str(extra[name]))
    used, graphs = extra["gpu_peak_used"], extra["peak_reserved_for_graphs"]
    table.add_row("GPU memory used at peak", units.size(used), f"{used:,}")
    if graphs:
        table.add_row("reserved for captured graphs", units.size(graphs), f"{graphs:,}")
    for column in results.COLUMNS:
        value = report.row.get(column.name)
        if null_name and column.name == "device_seconds":
            continue  # not a time of a GPU
        if column.unit and value is not None:
            source = " (measured)" if column.name == "device_seconds" else ""
            table.add_row(
                column.heading + source, units.value(column, value), units.exact(column, value)
            )
    return table
