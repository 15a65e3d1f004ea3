# SPDX-License-Identifier: Apache-2.0
"""allocbench record: a trace of what a command's PyTorch programs allocate on GPUs."""

from typing import Annotated, Literal

import typer

from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.output.files import STDOUT
from allocbench.output.stdout import tell_notes

EXAMPLES = (
    "allocbench record -o trace.parquet -- python train.py --epochs 1",
    "allocbench record -o trace.parquet --labels lines -- torchrun --nproc-per-node 2 train.py",
    "allocbench record --device null:h100 -o trace.parquet --steps 5 -- python train.py",
)
_CODE = 2  # exit code if a command succeeded but left no trace


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")],
    output: Annotated[str, options.output_option("The trace file, .parquet or .csv.")],
    labels: Annotated[
        Literal["none", "lines", "operators"] | None, typer.Option(metavar="KIND")
    ] = None,
    last: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    device: options.NullDevice = None,
    steps: options.Steps = None,
    timeout: options.TimeLimit = None,
    value: options.Values = None,
) -> None:
    """Run a command and record what its PyTorch programs request from the GPU allocator.

    The programs need no change. Each GPU of each process gets its own trace. A single trace is
    written to FILE; several are written to FILE-rank0-gpu1 and so on. The exit code is that of
    the command.

    Recording needs an NVIDIA GPU, or a null GPU (--device), whose kernels compute nothing. A
    program is recorded if it returns, raises an exception or calls sys.exit. A program that is
    killed leaves no trace.

    Options:
        command: The command, after two dashes.
        labels: Label allocs with lines of the program or with operators, or none; both slow it
            down. Default: lines on a null GPU, none on a GPU.
        last: Keep only the newest events of each process.
    """
    from allocbench.null_gpu import launch  # imported late: --help stays fast
    from allocbench.output.files import beside, check_trace_output, write_trace
    from allocbench.workloads import modelled_workspaces, recording

    if output == STDOUT:
        raise UsageError("--output -: standard output belongs to the command; name a file")
    check_trace_output(output)
    with launch.session(device, launch.Limits(steps, timeout, launch.values_of(value))) as session:
        chosen = labels or ("lines" if session.machine else "none")
        recorded = recording.record(command, chosen, last, machine=session.machine)
    tell_notes(f"a process was not recorded: {line}" for line in recorded.complaints)
    for name, trace in recorded.traces.items():
        path = beside(output, name)
        write_trace(trace, path)
        tell_notes([f"{path}: {len(trace):,} events, {trace.provenance.device}"])
        if marked := modelled_workspaces.sentence(modelled_workspaces.modelled(trace)):
            tell_notes([f"{path}: {marked}"])
    tell_notes(session.notes)
    if not recorded.traces:
        typer.echo(
            "error: nothing recorded: no process used a GPU through PyTorch and ended normally",
            err=True,
        )
    raise typer.Exit(recorded.code or (0 if recorded.traces else _CODE))
