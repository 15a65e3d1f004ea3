# SPDX-License-Identifier: Apache-2.0
"""A comparison of allocators: what `compare` runs, writes and prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from allocbench.arguments import inputs, options
from allocbench.base.cards import note
from allocbench.errors import UsageError
from allocbench.output.files import STDOUT, check_outputs
from allocbench.output.keeping import Write, written
from allocbench.output.terminal import console, dashboard, fitting, left_out
from allocbench.questions.recommend import EXPANDABLE
from allocbench.replays import experiment
from allocbench.replays.experiment import Effort
from allocbench.reports.advice import findings
from allocbench.reports.advice.choosing import KEEP
from allocbench.reports.page import tables
from allocbench.reports.rows import bundle, ranking, results
from allocbench.reports.rows.bundle import Bundle

_SPARE = (
    "stable_address_share",
    "fragmentation_ratio",
    "device_seconds",
    "alloc_p99_seconds",
    "device_calls",
    "alloc_p50_seconds",
    "seconds_per_event_cold",
    "wasted",
    "peak_reserved",
)
"""Metrics that are left out on a narrow terminal, in this order."""
_NAME = 16  # letters of an allocator that are not folded
_WIDEST = 1000


@dataclass(frozen=True)
class Outputs:
    """The requested files; - is standard output."""

    json: str | None
    html: str | None
    results: str | None


def compare(
    workloads: Sequence[str],
    allocators: str,
    device: str,
    *,
    model: str | None,
    reference: str | None,
    passes: int,
    min_capacity: bool,
    pin: int | None,
    outputs: Outputs,
    command: str,
) -> None:
    """Run the workloads through the allocators, write the files and print the tables.

    command: the command line, for the report. Raises UsageError.
    """
    specs = inputs.allocator_specs(allocators)
    if allocators == options.ALL:
        specs.insert(specs.index(KEEP) + 1, EXPANDABLE)
    inputs.check_specs("--allocators", specs, device)
    reference = options.reference_of(reference, specs)
    check_outputs(outputs.json, outputs.html, outputs.results, inputs=workloads)
    write_html = _html_writer() if outputs.html else None
    inputs.pin(pin)
    traces = inputs.load_all(workloads, model)
    inputs.tell_recorded(traces, specs, device)
    inputs.check_largest_request(traces, device)

    effort, free = Effort(passes, min_capacity), inputs.free_of(device)
    with dashboard(len(traces) * len(specs) * len(effort.stages)) as (begin, done):
        rows, details = experiment.run_matrix(
            traces,
            specs,
            device,
            effort,
            detailed=bool(outputs.html or outputs.results),
            stage=lambda workload, spec, stage: begin(f"{workload} {spec}: {stage}"),
            done=done,
        )
    inputs.tell_free(sum(row["failures"] or 0 for row in rows), device, free)
    compared = Bundle(results.frame(rows), details)
    writers: dict[str, Write] = {}
    if outputs.json:
        writers[outputs.json] = partial(results.write, rows)
    if outputs.results:
        writers[outputs.results] = partial(bundle.write, compared)
    if outputs.html and write_html:
        writers[outputs.html] = partial(write_html, compared, command=command, reference=reference)
    with written(writers, ".zip", partial(bundle.write, compared)):
        if STDOUT not in writers:
            show(results.frame(rows), reference)


def _html_writer() -> Any:
    """The function that writes reports; raises UsageError if its packages are not installed."""
    try:
        from allocbench.reports.page import html
    except ModuleNotFoundError as error:
        raise UsageError(f"--html: {error}") from error
    return html.write


def show(table: pd.DataFrame, reference: str | None) -> None:
    """Print a checked frame: advice, a table for each workload and device, means, verdicts."""
    out = console()
    cases = ranking.cases(table)
    for case in cases:
        for line in findings.advice(case).lines:
            out.print(Text(f"{case.title}: {line}"))
    with_cards = [case.device for case in cases if case.rows["card"].notna().any()]
    for line in dict.fromkeys(map(note, with_cards)):
        out.print(Text(line, "dim"))
    out.print()
    _print_tables(out, partial(tables.comparison, table, reference=reference), tables.TERMINAL)
    _print_tables(out, partial(tables.geometric_means, table, reference=reference), tables.MEANS)
    for case in cases:
        out.print(Text(f"{case.title}: {findings.sentence(findings.verdict(case))}"))


def _print_tables(
    out: Console, build: Callable[[Sequence[str]], list[tables.Table]], metrics: Sequence[str]
) -> None:
    """Print tables with as many metrics as fit, and list the omitted ones."""
    built, hidden = fitting(
        lambda omitted: build([metric for metric in metrics if metric not in omitted]),
        lambda built: all(_width(out, table) <= out.width for table in built),
        [metric for metric in _SPARE if metric in metrics],
    )
    for table in built:
        out.print(tables.to_rich(table))
        if hidden:
            headings = [results.SCHEMA[metric].heading for metric in hidden]
            out.print(left_out(headings, "--json, --html"))
        out.print()


def _width(out: Console, table: tables.Table) -> int:
    """Width of a table in characters if long names of allocators are folded."""
    options = out.options.update(max_width=_WIDEST)
    folded = max(len(row.allocator) for row in table.rows) - _NAME
    return out.measure(tables.to_rich(table), options=options).maximum - max(0, folded)
