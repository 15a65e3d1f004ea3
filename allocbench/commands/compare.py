# SPDX-License-Identifier: Apache-2.0
"""allocbench compare: workloads through many allocators, and who wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.text import Text

from allocbench import experiment, inputs, options
from allocbench.cards import note
from allocbench.errors import UsageError
from allocbench.experiment import Effort
from allocbench.keeping import Write, written
from allocbench.outputs import STDOUT, check_outputs
from allocbench.questions.recommend import EXPANDABLE
from allocbench.questions.timing import PASSES
from allocbench.reports import bundle, findings, ranking, results, tables
from allocbench.reports.bundle import Bundle
from allocbench.reports.recommending import KEEP
from allocbench.terminal import console, dashboard

EXAMPLES = (
    "allocbench compare gpt2-train",
    "allocbench compare gpt2-train llm-decode --html report.html --results results.zip",
    "allocbench compare trace.csv --allocators naive,bfc:allow_growth=false,buddy",
    "allocbench compare gpt2-train --device sim:8GiB --reference bfc --json -",
    "allocbench compare serve-chat serve-chat:rate=8,seed=1 bomb-buddy",
    "allocbench compare requests.csv --model llama-3-8b --device sim:80GiB",
    "allocbench compare --device null:rtx4090 -- python train.py",
)
_SPARE = (
    "fragmentation_ratio",
    "device_seconds",
    "alloc_p99_seconds",
    "device_calls",
    "alloc_p50_seconds",
    "seconds_per_event_cold",
    "wasted",
)
"""Metrics that a narrow terminal goes without, the first first."""
_NAME = 16  # letters of an allocator that are not folded
_WIDEST = 1000


def run(
    context: typer.Context,
    workloads: options.Workloads,
    allocators: options.Allocators = inputs.ALL,
    device: options.Device = options.DEVICE,
    model: options.Model = None,
    reference: options.Reference = None,
    time: options.Passes = PASSES,
    min_capacity: options.Capacity = True,
    pin: options.Pin = None,
    json: options.Json = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a report as one HTML file; - is standard output."),
    ] = None,
    bundled: Annotated[
        str | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="Write rows and what charts need, for `report`; - is standard output.",
        ),
    ] = None,
) -> None:
    """Replay workloads through allocators and compare memory, fragmentation and time.

    The first lines name the best setting and the best allocator of those compared, as `recommend`
    does. All allocators are those of `list`, and caching with expandable segments.
    The table marks the best and the worst of the allocators that may be recommended; those that
    may not are floors, shown to compare with. No table is printed when rows or report go to
    standard output. A long comparison shows on a terminal what it has found so far.
    """
    specs = inputs.allocator_specs(allocators)
    if allocators == inputs.ALL:
        specs.insert(specs.index(KEEP) + 1, EXPANDABLE)
    inputs.check_specs("--allocators", specs, device)
    reference = options.reference_of(reference, specs)
    check_outputs(json, html, bundled)
    write_html = _html_writer() if html else None
    inputs.pin(pin)
    traces = inputs.load_all(workloads, model)
    inputs.check_largest_request(traces, device)

    effort = Effort(time, min_capacity)
    with dashboard(len(traces) * len(specs) * len(effort.stages)) as (begin, done):
        rows, details = experiment.run_matrix(
            traces,
            specs,
            device,
            effort,
            detailed=bool(html or bundled),
            stage=lambda workload, spec, stage: begin(f"{workload} {spec}: {stage}"),
            done=done,
        )
    found = Bundle(results.frame(rows), details)
    asked: dict[str, Write] = {json: partial(results.write, rows)} if json else {}
    if bundled:
        asked[bundled] = partial(bundle.write, found)
    if html and write_html:
        asked[html] = partial(write_html, found, command=context.obj, reference=reference)
    with written(asked, ".zip", partial(bundle.write, found)):
        if STDOUT not in asked:
            show(results.frame(rows), reference)


def _html_writer() -> Any:
    """The function that writes reports; raises UsageError when what it needs is not installed."""
    try:
        from allocbench.reports import html
    except ModuleNotFoundError as error:
        raise UsageError(f"--html: {error}") from error
    return html.write


def show(table: pd.DataFrame, reference: str | None) -> None:
    """Print a checked frame: a table for each workload and device, the means, the verdicts."""
    out = console()
    for case in ranking.cases(table):
        for line in findings.advice(case):
            out.print(Text(f"{case.title}: {line}"))
        if case.rows["card"].notna().any():
            out.print(Text(note(case.device), "dim"))
        out.print()
    _print_tables(out, partial(tables.comparison, table, reference=reference), tables.TERMINAL)
    _print_tables(out, partial(tables.geometric_means, table, reference=reference), tables.MEANS)
    for case in ranking.cases(table):
        out.print(Text(f"{case.title}: {findings.sentence(findings.verdict(case))}"))


def _print_tables(
    out: Console, build: Callable[[Sequence[str]], list[tables.Table]], metrics: Sequence[str]
) -> None:
    """Print tables with as many of the metrics as there is room for, and say what is left out."""
    spare = [metric for metric in _SPARE if metric in metrics]
    for n in range(len(spare) + 1):
        built = build([metric for metric in metrics if metric not in spare[:n]])
        if all(_width(out, table) <= out.width for table in built):
            break
    for table in built:
        out.print(tables.to_rich(table))
        if n:
            hidden = ", ".join(results.SCHEMA[metric].heading for metric in spare[:n])
            out.print(Text(f"no room here for: {hidden}; see --json, --html", "dim"))
        out.print()


def _width(out: Console, table: tables.Table) -> int:
    """Columns that a table takes when allocators of many letters are folded."""
    options = out.options.update(max_width=_WIDEST)
    folded = max(len(row.allocator) for row in table.rows) - _NAME
    return out.measure(tables.to_rich(table), options=options).maximum - max(0, folded)
