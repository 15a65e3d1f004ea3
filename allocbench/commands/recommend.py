# SPDX-License-Identifier: Apache-2.0
"""allocbench recommend: which allocator for a workload on a device."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from allocbench import inputs, options
from allocbench.commands.tune import tuner
from allocbench.errors import UsageError
from allocbench.keeping import records_written
from allocbench.outputs import STDOUT, check_outputs
from allocbench.questions import recommend as recommending
from allocbench.questions.recommend import Study
from allocbench.questions.switching import how
from allocbench.reports import units
from allocbench.reports.recommending import OBJECTIVES, PROGRAM_SECONDS, Objective
from allocbench.reports.results import records
from allocbench.terminal import console, plain_table, progress_bar

EXAMPLES = (
    "allocbench recommend gpt2-train --device sim:24GiB",
    "allocbench recommend trace.csv --objective balanced --orders 1 --tuning 10",
)
_NAME = 30  # letters of an allocator in the table
_MEANING = {
    "memory": "least min capacity",
    "latency": "least host and device time per event",
    "balanced": "least min capacity times time, the program's own work taken as"
    f" {units.seconds(PROGRAM_SECONDS)} per event",
}


def run(
    workload: options.Workload,
    device: options.Device = options.DEVICE,
    objective: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(OBJECTIVES)}.")
    ] = OBJECTIVES[0],
    model: options.Model = None,
    orders: Annotated[
        int, typer.Option(metavar="N", min=0, help="Perturbed traces behind the confidence.")
    ] = recommending.ORDERS,
    tuning: Annotated[
        int, typer.Option(metavar="N", min=0, help="Settings of caching to try; 0 tunes nothing.")
    ] = recommending.TUNING,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of tuning and orders.")] = 0,
    pin: options.Pin = None,
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the ranking as JSON; - is stdout."),
    ] = None,
) -> None:
    """Recommend an allocator, with the reason, how sure that is, and how to switch.

    Runs every allocator, and caching in tuned settings. Never recommended is what fails a request
    on the device, here or with the steps in another order, and what is a floor. Where several do
    not clearly differ the answer says so, and prefers what programs run on already.
    """
    if objective not in OBJECTIVES:
        raise UsageError(
            f"--objective {objective}: no such objective; valid names: {', '.join(OBJECTIVES)}"
        )
    wanted: Objective = objective
    if tuning:
        tuner()
    inputs.check_specs("--device", [], device)
    check_outputs(json)
    inputs.pin(pin)
    ((name, trace),) = inputs.load_all([workload], model).items()
    with progress_bar(recommending.stages(device, None, orders, tuning)) as begin:
        found = recommending.study(
            trace,
            device,
            wanted,
            workload=name,
            orders=orders,
            tuning=tuning,
            seed=seed,
            begin=begin,
        )
    with records_written(found.rows, json):
        if json != STDOUT:
            _print(name, found, device)


def _print(name: str, found: Study, device: str) -> None:
    out = console()
    answer = found.recommendation
    out.print(_table(f"{name} on {device}: {_MEANING[answer.objective]}", found))
    out.print()
    chosen = answer.allocator or "none"
    out.print(Text(f"recommended: {chosen}", "bold"), soft_wrap=True)
    out.print(Text(f"why: {answer.reason}"))
    out.print(Text(f"confidence: {_confidence(found)}"))
    if answer.failed:
        out.print(Text(f"not considered, for they fail requests: {', '.join(answer.failed)}"))
    if answer.allocator:
        out.print(Text("how to switch (PyTorch):"))
        out.print(Text(how(answer.allocator)), soft_wrap=True)


def _confidence(found: Study) -> str:
    answer = found.recommendation
    if answer.allocator is None:
        return "none"
    words = []
    if answer.margin is not None:
        words.append(f"the next clearly behind needs {units.percent(answer.margin - 1)} more")
    if answer.agreement is not None:
        agreeing = round(answer.agreement * len(found.perturbed))
        words.append(
            f"not far behind the best in {agreeing} of {len(found.perturbed)} other orders"
        )
    return f"{answer.confidence} ({'; '.join(words) or 'nothing to compare with'})"


def _table(title: str, found: Study) -> Table:
    numbers = ("min capacity", "peak reserved", "host time per event", "device time per event")
    table = plain_table(title, "allocator", *numbers, "", right=numbers)
    rows = records(found.rows)
    names = units.short([row["allocator"] for row in rows], _NAME)
    for row in rows:
        note = "" if row["candidate"] else "floor"
        if row["failures"]:
            note = f"{row['failures']:,} failed"
        capacity, host = row["min_capacity"], row["host_seconds"]
        table.add_row(
            Text(names[row["allocator"]], no_wrap=True),
            units.NOT_AVAILABLE if capacity is None else units.size(capacity),
            units.size(row["peak_reserved"]),
            units.NOT_AVAILABLE if host is None else units.seconds(host),
            units.seconds(row["device_seconds"]),
            note,
        )
    return table
