# SPDX-License-Identifier: Apache-2.0
"""allocbench recommend: the best setting or allocator for a workload on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import label, notes
from allocbench.base.spec import SpecSyntaxError, parse_options
from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.inputs import ALL, DEVICE
from allocbench.output.files import STDOUT, records_written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, progress_bar, say
from allocbench.questions import BUDGET, ORDERS
from allocbench.questions.switching import how
from allocbench.reports.advice.choosing import KEEP, WEIGHTS, Weights, kind
from allocbench.reports.advice.recommending import LOSSES
from allocbench.reports.rows.assumptions import per_event
from allocbench.reports.rows.results import records

if TYPE_CHECKING:
    from allocbench.questions.recommend import Study

EXAMPLES = (
    "allocbench recommend gpt2-train --device card:rtx-4060",
    "allocbench recommend trace.csv --orders 1 --budget 10 --weigh time=5,plug_in=20",
    "allocbench recommend --device null:h100 -- python train.py",
)


def run(
    workload: options.Workload,
    device: options.Device = DEVICE,
    model: options.Model = None,
    weigh: Annotated[
        str,
        typer.Option(
            metavar="NAME=N,...",
            help="The weight of each cost, in percent of running time: "
            + ", ".join(f"{name}={value:g}" for name, value in asdict(WEIGHTS).items())
            + ".",
        ),
    ] = "",
    orders: Annotated[int, typer.Option(metavar="N", min=0)] = ORDERS,
    budget: Annotated[int, typer.Option(metavar="N", min=0)] = BUDGET,
    seed: options.Seed = 0,
    pin: options.Pin = None,
    everything: options.Everything = False,
    json: Annotated[str | None, options.json_option("the ranking")] = None,
) -> None:
    """Recommend a setting or an allocator, with the reason, how sure that is, and how to switch.

    The command runs every allocator. It keeps the default if that fits with 5 % of the device to
    spare. Otherwise it searches the settings of caching, considers the choices that leave the most
    room, or up to 0.5 % of the device less, and weighs their memory, time and cost of switching.
    naive, which calls the driver for each request, is recommended only if nothing else fits.

    Options:
        orders: Number of traces with shuffled steps to test.
        budget: Approximate number of settings of caching to try.
    """
    from allocbench.inputs.question import allocator_specs, read
    from allocbench.questions import recommend
    from allocbench.questions.best import best, stages

    weights = _weights(weigh)
    specs = allocator_specs(ALL, device)
    question = read([workload], specs, device, model=model, outputs=[json], pin=pin)
    tell_notes(question.notes)
    run, device = question.runner(), label(question.device)
    with progress_bar(stages(budget)) as begin:
        found = best(
            run, label=device, weights=weights, orders=orders, budget=budget, seed=seed, begin=begin
        )
        study = recommend.study(run, found, device)
    with records_written(study.rows, json):
        if json != STDOUT:
            cards = notes(question.device, run.trace.provenance.device, everything)
            _print(f"{run.workload} on {device}", study, cards, everything)


def _weights(text: str) -> Weights:
    """The weights with those that a text gives; raises UsageError for another name or number."""
    names = asdict(WEIGHTS)
    try:
        changed = parse_options(text) if text else {}
    except SpecSyntaxError as error:
        raise UsageError(f"--weigh: {error}") from error
    for name, value in changed.items():
        item = f"{name}={value}"
        if name not in names:
            raise UsageError(f"--weigh {item}: no such weight; valid names: {', '.join(names)}")
        try:
            names[name] = float(value)
        except ValueError:
            names[name] = -1.0
        if not 0 <= names[name] < float("inf"):
            raise UsageError(f"--weigh {item}: a weight must be a number of at least 0")
    return Weights(**names)


def _print(title: str, study: Study, cards: Sequence[str], everything: bool) -> None:
    out = console()
    say(study.advice.lines)
    out.print()
    out.print(_table(title, study, everything))
    say(cards, "dim")
    out.print()
    chosen = study.advice.chosen
    what = chosen or f"none, because {study.advice.unfit}"
    if study.advice.keeps:
        what = f"keep {study.advice.now}"
    out.print(Text(f"recommended: {what}", "bold"), soft_wrap=True)
    say(study.warnings)
    if chosen is None:
        return
    say([f"confidence: {study.confidence.text}"])
    if not study.advice.keeps:
        if losses := LOSSES.get(kind(chosen)):
            say([f"what it costs: {losses}"])
        say(["how to switch (PyTorch):"])
        out.print(Text(how(chosen)), soft_wrap=True)


def _table(title: str, study: Study, everything: bool) -> Table:
    """The candidates that complete the trace, and PyTorch's own. everything: the others, too."""
    numbers, card = ("min capacity", "device time per event"), "smallest card"
    rows, complete = records(study.rows), study.advice.costs
    title += f": {len(complete)} of {units.count(len(rows), 'candidate')} complete the trace"
    table = plain_table(title, "allocator", *numbers, card, "", right=numbers, spare=[card])
    for column in table.columns[len(numbers) + 1 :]:
        column.no_wrap = True
    for row in rows:
        if not (everything or row["allocator"] in {KEEP, *complete}):
            continue
        failed = ""
        if row["failures"]:
            failed = f"{row['failures']:,} failed"
        elif row["failed_orders"]:
            failed = f"fails in {row['failed_orders']} of {study.orders} orders"
        least = row["min_capacity"]
        table.add_row(
            Text(row["allocator"]),
            units.NOT_AVAILABLE if least is None else units.size(least),
            estimate.text if (estimate := per_event(row)) else units.NOT_AVAILABLE,
            row["card"] or "",
            failed,
        )
    return table
