# SPDX-License-Identifier: Apache-2.0
"""allocbench plan: an offset for every block, with all lifetimes known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.table import Table

from allocbench import allocators
from allocbench.allocators import PlanResult
from allocbench.allocators.planning import TIME_LIMIT, Report
from allocbench.base import units
from allocbench.base.text import one_line
from allocbench.commands import options
from allocbench.errors import UsageError, errors_naming
from allocbench.output.files import STDOUT, check_outputs, open_output, write_json, written
from allocbench.output.terminal import console, plain_table
from allocbench.questions.model_plan import ALIGNMENT as _ALIGNMENT_OF_MODEL
from allocbench.questions.model_plan import ModelPlan, plan_model
from allocbench.reports.advice.error_text import xla_plan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allocbench.output.files import Write
    from allocbench.workloads.block_lifetimes import Lifetimes

EXAMPLES = (
    "allocbench plan gpt2-train --planner greedy_by_size",
    "allocbench plan trace.csv --time-limit 2 -o plan.csv",
    "allocbench plan model.tflite --planner greedy_by_size --json -",
)
_ALIGNMENT = 256  # bytes, as for every allocator
_COUNTS = ("blocks", "operators", "tensors")
_SIZES = {"height": "height", "max_load": "max load", "lower_bound": "lower bound"}
_SIZES_OF_MODEL = {
    "height": "arena",
    "tflite_height": "arena in TensorFlow Lite",
    "lower_bound": "lower bound",
    "persistent": "variables, in an arena of their own",
    "constant": "constants, in no arena",
}


def run(
    source: Annotated[str, typer.Argument(metavar=f"WORKLOAD|FILE{options.OR_COMMAND}")],
    planner: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(allocators.planners())}.")
    ] = "exact",
    model: options.Model = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS")] = TIME_LIMIT,
    alignment: Annotated[
        int | None,
        options.bytes_option(
            f"A power of two; default: {_ALIGNMENT} for a trace, {_ALIGNMENT_OF_MODEL} for a"
            " model, 1 for a CSV of lifetimes, that of XLA's own offsets for its buffers."
        ),
    ] = None,
    judged: Annotated[str | None, typer.Option("--offsets", metavar="FILE")] = None,
    output: Annotated[
        str | None,
        options.output_option(
            "Write the plan as CSV of id,lower,upper,size,offset; for a model of"
            " tensor,name,placement,bytes,offset,owner; - is standard output."
        ),
    ] = None,
    json: Annotated[str | None, options.json_option("the numbers")] = None,
) -> None:
    """Assign an offset to every block of a trace, with all lifetimes known.

    The lower the plan, the better. A plan cannot be lower than the lower bound, so a plan that
    reaches it is optimal. If a file goes to standard output, nothing else is printed.

    For a buffer assignment of XLA, the temporary buffers are planned, and the height of XLA's own
    plan is shown.

    Options:
        source: A workload (see `list`), a file in any format of `list formats`, the graph of a
            model (.tflite or JSON), a buffer assignment of XLA, or a program to run after two
            dashes.
        time_limit: Seconds that the exact planner may search.
        judged: Judge the offsets of another planner, a CSV with the columns id and offset.
    """
    from allocbench.inputs.traces import load_plannable  # imported late: --help stays fast
    from allocbench.workloads import OperatorGraph, read_offsets, write_plan
    from allocbench.workloads.xla_buffers import BufferAssignment, alignment_of, temporary_blocks

    if planner not in allocators.planners():
        valid = ", ".join(allocators.planners())
        raise UsageError(f"--planner {planner}: no such planner; valid names: {valid}")
    check_outputs(json, output, inputs=[source, *([judged] if judged else [])])
    plannable = load_plannable(source, model)
    if judged and not isinstance(plannable, tuple):
        raise UsageError(f"--offsets {judged}: {source} is a model, not a trace or lifetimes")
    if isinstance(plannable, OperatorGraph):
        with errors_naming(source), _progress() as report:
            model_plan = plan_model(
                plannable,
                planner,
                alignment=_ALIGNMENT_OF_MODEL if alignment is None else alignment,
                time_limit=time_limit,
                report=report,
            )
        _write(json, model_plan.numbers, output, model_plan.write, _model_table(source, model_plan))
        return
    if isinstance(plannable, BufferAssignment):
        with errors_naming(source):
            blocks, offsets, own = temporary_blocks(plannable)
        default, xla = alignment_of(offsets, _ALIGNMENT), own
    else:
        blocks, is_csv = plannable
        default, xla = 1 if is_csv else _ALIGNMENT, None
    lives = blocks.size, blocks.first, blocks.last
    alignment = default if alignment is None else alignment
    with errors_naming(judged or source), _progress() as report:
        if judged:
            given = _aligned(judged, blocks, read_offsets(judged, blocks), alignment)
            plan = allocators.judge(*lives, given, planner=judged)
        else:
            plan = allocators.plan(
                *lives, planner=planner, alignment=alignment, time_limit=time_limit, report=report
            )
    write = partial(write_plan, blocks, plan.offsets)
    numbers = _numbers(plan, blocks.coverage)
    table = _table(source, numbers)
    if blocks.coverage:
        table.add_row("coverage", blocks.coverage)
    if xla is not None:
        numbers["xla_height"] = xla
        table.caption = xla_plan(plan.height, xla)
    _write(json, numbers, output, write, table)


def _aligned(
    path: str, blocks: Lifetimes, offsets: NDArray[np.uint64], alignment: int
) -> NDArray[np.uint64]:
    """The offsets; raises UsageError if one is no multiple of the alignment."""
    if alignment < 1:
        raise UsageError(f"alignment {alignment} must be a power of two")
    if wrong := (offsets % alignment).nonzero()[0].tolist():
        first = wrong[0]
        raise UsageError(
            f"{path}: {len(wrong):,} of {len(offsets):,} offsets are no multiples of {alignment}:"
            f" block {blocks.ids[first]} is at {offsets[first]:,}"
        )
    return offsets


def _write(
    json: str | None,
    numbers: dict[str, Any],
    output: str | None,
    write: Callable[[BinaryIO], None],
    table: Table,
) -> None:
    def write_offsets(path: str) -> None:
        with open_output(path) as sink:
            write(sink)

    outputs: dict[str | None, Write] = {output: write_offsets, json: partial(write_json, numbers)}
    with written(outputs, ".csv", write_offsets):
        if STDOUT not in outputs:
            console().print(table)


@contextmanager
def _progress() -> Iterator[Report | None]:
    """Show height and bound during the search, if standard error is a terminal."""
    out = Console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    with out.status("planning") as status:

        def show(seconds: float, height: int, lower_bound: int) -> None:
            best_so_far = (
                f"height {units.size(height)}, {_gap(height, lower_bound)} above the bound"
            )
            status.update(f"planning, {seconds:.1f} s: {best_so_far}")

        yield show


def _numbers(result: PlanResult, coverage: str) -> dict[str, Any]:
    names = "planner", "height", "max_load", "lower_bound", "optimal", "seconds"
    numbers = {name: getattr(result, name) for name in names}
    return numbers | {"blocks": len(result.offsets), "coverage": coverage or None}


def _gap(height: int, lower_bound: int) -> str:
    """How far a plan is above its bound; that of nothing is 0."""
    return units.percent(height / lower_bound - 1 if lower_bound else 0.0)


def _table(source: str, numbers: Mapping[str, Any], sizes: Mapping[str, str] = _SIZES) -> Table:
    """The numbers of a plan. sizes: the words for those that are bytes."""
    table = plain_table(f"{one_line(Path(source).name)} planned by {numbers['planner']}", "", "")
    for name in _COUNTS:
        if name in numbers:
            table.add_row(name, f"{numbers[name]:,}")
    for name, words in sizes.items():
        table.add_row(words, f"{units.size(numbers[name])} ({numbers[name]:,} bytes)")
    gap = _gap(numbers["height"], numbers["lower_bound"])
    table.add_row("above the lower bound", "0: optimal" if numbers["optimal"] else gap)
    if numbers["seconds"]:
        table.add_row("time", units.seconds(numbers["seconds"]))
    return table


def _model_table(source: str, model_plan: ModelPlan) -> Table:
    table = _table(source, model_plan.numbers, _SIZES_OF_MODEL)
    if not any(operator.temporaries for operator in model_plan.graph.operators):
        table.caption = (
            "The file does not contain temporaries of kernels; an interpreter needs memory for them"
            " too."
        )
    return table
