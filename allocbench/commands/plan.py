# SPDX-License-Identifier: Apache-2.0
"""allocbench plan: an offset for every block, with all lifetimes known."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from allocbench import allocators, inputs, options
from allocbench.allocators import PlanResult
from allocbench.allocators.planning import TIME_LIMIT, Report
from allocbench.errors import UsageError, errors_naming
from allocbench.outputs import STDOUT, check_outputs, open_output
from allocbench.reports import units
from allocbench.terminal import console, plain_table
from allocbench.workloads import write_plan

EXAMPLES = (
    "allocbench plan gpt2-train --planner greedy_by_size",
    "allocbench plan trace.csv --time-limit 2 -o plan.csv",
    "allocbench plan trace.parquet --json -",
)
_ALIGNMENT = 256  # bytes: that of every allocator


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD|FILE",
            help="A workload, see `list`, or a file in any format of `list formats`.",
        ),
    ],
    planner: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(allocators.planners())}.")
    ] = "exact",
    model: options.Model = None,
    time_limit: Annotated[
        float, typer.Option(metavar="S", help="Seconds that the exact planner may take.")
    ] = TIME_LIMIT,
    alignment: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help=f"A power of two; {_ALIGNMENT} for a trace, 1 for a CSV of lifetimes.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the numbers as JSON; - is stdout."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PLAN",
            help="Write the plan as CSV of id,lower,upper,size,offset; - is stdout.",
        ),
    ] = None,
) -> None:
    """Assign an offset to every block of a trace, with all lifetimes known.

    The lower the plan, the better. A plan cannot be lower than the lower bound, so a plan that
    reaches it is optimal. If a file goes to standard output, nothing else is printed.
    """
    if planner not in allocators.planners():
        valid = ", ".join(allocators.planners())
        raise UsageError(f"--planner {planner}: no such planner; valid names: {valid}")
    check_outputs(json, output)
    blocks, is_csv = inputs.load_lifetimes(source, model)
    with errors_naming(source), _progress() as report:
        made = allocators.plan(
            blocks.size,
            blocks.first,
            blocks.last,
            planner=planner,
            alignment=(1 if is_csv else _ALIGNMENT) if alignment is None else alignment,
            time_limit=time_limit,
            report=report,
        )
    if output:
        with open_output(output) as sink:
            write_plan(blocks, made.offsets, sink)
    if json:
        with open_output(json) as sink:
            sink.write(json_text.dumps(_numbers(made), indent=2).encode() + b"\n")
    if STDOUT not in (json, output):
        console().print(_table(source, made))


@contextmanager
def _progress() -> Iterator[Report | None]:
    """Show height and bound while a plan is searched, on a terminal alone."""
    out = Console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    with out.status("planning") as status:

        def show(seconds: float, height: int, lower_bound: int) -> None:
            found = f"height {units.size(height)}, {_gap(height, lower_bound)} above the bound"
            status.update(f"planning, {seconds:.1f} s: {found}")

        yield show


def _numbers(made: PlanResult) -> dict[str, Any]:
    return {
        "planner": made.planner,
        "blocks": len(made.offsets),
        "height": made.height,
        "max_load": made.max_load,
        "lower_bound": made.lower_bound,
        "optimal": made.optimal,
        "seconds": made.seconds,
    }


def _gap(height: int, lower_bound: int) -> str:
    return units.percent(height / lower_bound - 1)


def _table(source: str, made: PlanResult) -> Table:
    table = plain_table(f"{source} planned by {made.planner}", "", "")
    table.add_row("blocks", f"{len(made.offsets):,}")
    for name in ("height", "max_load", "lower_bound"):
        size = getattr(made, name)
        table.add_row(name.replace("_", " "), f"{units.size(size)} ({size:,} bytes)")
    gap = _gap(made.height, made.lower_bound)
    table.add_row("above the lower bound", "0: optimal" if made.optimal else gap)
    table.add_row("seconds", f"{made.seconds:.2f}")
    return table
