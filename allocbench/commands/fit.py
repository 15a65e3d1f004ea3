# SPDX-License-Identifier: Apache-2.0
"""allocbench fit: how much memory a workload needs, and which cards have enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import cards, find, label, notes, of_device
from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.inputs import ALL, DEVICE
from allocbench.output.files import STDOUT, check_outputs, records_written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, progress_bar, say
from allocbench.reports.advice import fitting
from allocbench.reports.rows.results import records

if TYPE_CHECKING:
    import pandas as pd

    from allocbench.questions.fit import Bounds
    from allocbench.questions.occupancy import Occupancy, Outside
    from allocbench.replays.runner import Runner
    from allocbench.workloads import Trace

EXAMPLES = (
    "allocbench fit gpt2-train",
    "allocbench fit -- python train.py",
    "allocbench fit --device null:l4 --vary batch=8..256 -- python train.py --batch {batch}",
    "allocbench fit gpt2-train --allocators caching --cards",
    "allocbench fit trace.csv --allocators caching,caching:expandable_segments=true",
    "allocbench fit trace.parquet --time-limit 2 --json -",
)
PYTORCH = "caching"
"""The allocator that is PyTorch's own."""
_TIME_LIMIT = 5.0  # seconds


def run(
    workload: options.Workload,
    allocators: options.Allocators = ALL,
    device: options.Device = DEVICE,
    model: options.Model = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", min=0)] = _TIME_LIMIT,
    vary: Annotated[
        str | None, typer.Option(metavar="NAME=A..B", rich_help_panel=options.OF_PROGRAM)
    ] = None,
    every_card: Annotated[bool, typer.Option("--cards")] = False,
    context: options.Context = None,
    nccl: options.Nccl = None,
    other: options.Other = 0,
    everything: options.Everything = False,
    exit_code: options.ExitCode = False,
    json: options.Json = None,
) -> None:
    """Find the smallest device on which each allocator completes a trace.

    The size is found to 2 MiB by replays on devices of different capacities; the capacity of
    --device does not matter. For comparison, the table shows the max load, which is a lower bound
    for every allocator, and the best plan with all lifetimes known. If an allocator fails on a
    device that is larger than one on which it completes, the table says so.

    Options:
        time_limit: Seconds to search for the best plan; 0 skips the search.
        vary: Replace {NAME} in the command line of a program by numbers from A to B, and find the
            largest one with which the program fits on the card of --device. Without --device,
            estimate it for every card. A..B:EVERY and A,B,C are possible, too.
        every_card: Show on which cards caching completes, or the first allocator if caching is not
            among them.
    """
    from allocbench.commands.vary import answer
    from allocbench.inputs.question import allocator_specs, check_specs, read
    from allocbench.questions import check, fit
    from allocbench.questions.hazards import growing, modelled
    from allocbench.questions.occupancy import Outside, ranks_of
    from allocbench.questions.tune import EXPANDABLE
    from allocbench.replays.recorded_settings import with_conf
    from allocbench.replays.runner import Runner, beside, outside_of

    specs = allocator_specs(allocators, device)
    if allocators == ALL:
        specs = fit.with_expandable(specs)
    usual = (PYTORCH, with_conf(EXPANDABLE))
    first = [spec for one in usual for spec in specs if with_conf(spec) == one]
    if vary is not None:
        if exit_code:
            raise UsageError("--exit-code: not with --vary, which asks about many values")
        check_specs("--allocators", specs, device)
        check_outputs(json)
        answer(workload, vary, device, json)
        return
    question = read([workload], specs, device, model=model, outputs=[json])
    tell_notes(question.notes)
    (name, trace), device = question.only, question.device
    outside = Outside(context, other, ranks_of(trace), nccl, outside_of(trace))
    run = Runner(trace, device, name)
    with progress_bar(1 + len(specs)) as begin:
        begin("best plan")
        limits = fit.bounds(trace, time_limit)
        fitted = fit.fit(run, specs, limits, outside, begin)
    with records_written(fitted, json):
        if json != STDOUT:
            _print(name, fitted, limits, first, everything or allocators != ALL, trace)
            asked = first if allocators == ALL and first else specs
            models = modelled(specs) if everything or allocators != ALL else []
            say([*growing(run, asked, label(device)), *models])
            if PYTORCH in specs:
                _print_filled(run, outside, fitted)
            if every_card:
                rows = {row["allocator"]: row for row in records(fitted)}
                console().print(_card_table(rows[(first or specs)[0]], outside))
            say(notes("", trace.provenance.device, everything), "dim")
    if exit_code:
        raise typer.Exit(check.exit_code(run.on(beside(run.device, trace)), (first or specs)[0]))


def _print(
    name: str,
    rows: pd.DataFrame,
    known: Bounds,
    first: Sequence[str],
    everything: bool,
    trace: Trace,
) -> None:
    """Print the answer, and the table. first: the user's allocator and its setting.

    everything: also about allocators that the user does not have.
    """
    out, by_spec = console(), {row["allocator"]: row for row in records(rows)}
    own, *more = (by_spec[spec] for spec in first or list(by_spec)[:1])
    setting = (
        ("expandable_segments:True", more[0]) if more and own["allocator"] == PYTORCH else None
    )
    unknown = trace.coverage.range(trace.max_load)
    say([f"{fitting.answer(name, own, setting)} {unknown}".rstrip()])
    out.print()
    out.print(_table(name, rows, first))
    say([_bounds(known)])
    asked = [row for spec, row in by_spec.items() if everything or spec in first]
    say(fitting.fails_above(row) for row in asked if row["fails_above"] is not None)


def _print_filled(run: Runner, outside: Outside, rows: pd.DataFrame) -> None:
    """What fills the card of --device, else the smallest card on which PyTorch completes."""
    from allocbench.questions.occupancy import occupancy

    chosen, _ = of_device(run.device) or (None, "")
    (smallest,) = rows.loc[rows["allocator"] == PYTORCH, "card"]
    if chosen is None and smallest is not None:
        (chosen,) = find(smallest)
    if chosen is None or not run.simulated:
        return
    console().print()
    filled = occupancy(run, PYTORCH, chosen, outside)
    part = " in this part of the program" if run.trace.coverage.bound else ""
    table = plain_table(f"what fills {chosen.name}{part}", "bytes", "", right=("bytes",))
    for size, what in _filling(filled, outside):
        table.add_row(units.size(size), what)
    console().print(table)


def _filling(filled: Occupancy, outside: Outside) -> list[tuple[int, str]]:
    card, parts = filled.card, filled.parts
    said = "as given" if outside.nccl is not None else "model"
    enough = ""
    if filled.needed is not None and filled.needed < filled.reserved:
        enough = f"; {units.size(filled.needed)} are enough"
    held = "PyTorch reserves" if filled.fits else "PyTorch needs"
    ends = "left" if filled.fits else "too little"
    ranks = f"{outside.ranks} ranks, {said}" if outside.ranks > 1 else "one rank"
    rows = [
        (filled.reserved, f"{held}{enough}"),
        (
            parts["context"],
            f"context and libraries ({'model' if outside.context is None else 'as given'})",
        ),
        *((size, f"{library}, outside of PyTorch") for library, size in outside.libraries.items()),
        (parts["nccl"], f"NCCL's buffers ({ranks})"),
        (parts["other"], f"other processes ({'as given' if outside.other else 'assumed'})"),
        (filled.in_use, f"in all: nvidia-smi shows {filled.in_use >> 20:,} MiB"),
    ]
    left = abs(card.usable - filled.in_use)
    return [*rows, (left, f"{ends}, of {units.size(card.usable)} usable")]


def _table(name: str, rows: pd.DataFrame, first: Sequence[str]) -> Table:
    numbers = ("min capacity", "in MiB", "overhead")
    part = " for this part of the program" if rows["coverage"].notna().any() else ""
    table = plain_table(
        f"{name}: the smallest device that is enough{part}",
        "allocator",
        *numbers,
        "smallest card",
        right=numbers,
    )
    place = {spec: n for n, spec in enumerate(first)}
    ordered = rows.assign(place=[place.get(spec, len(first)) for spec in rows["allocator"]])
    ordered = ordered.sort_values(
        ["place", "candidate", "min_capacity"], ascending=[True, False, True], kind="stable"
    )
    for n, row in enumerate(records(ordered)):
        if 0 < n == len(first):
            table.add_section()
        capacity, overhead = row["min_capacity"], row["overhead"]
        table.add_row(
            Text(row["allocator"] + ("" if row["candidate"] else " (floor)")),
            "none" if capacity is None else units.size(capacity),
            units.NOT_AVAILABLE if capacity is None else f"{capacity >> 20:,}",
            units.NOT_AVAILABLE if overhead is None else units.times(overhead),
            row["card"] or "none",
        )
    return table


def _card_table(row: dict[str, Any], outside: Outside) -> Table:
    """For each card: whether an allocator completes the trace there, and what is left."""
    numbers = ("usable", "outside PyTorch", "left for PyTorch")
    table = plain_table(f"{row['allocator']} on each card", "card", *numbers, "fits", right=numbers)
    for card in cards():
        free = outside.free(card)
        sizes = map(units.size, (card.usable, sum(outside.parts(card).values()), free))
        table.add_row(card.name, *sizes, _verdict(free, card.name in row["cards"], row))
    return table


def _verdict(free: int, fits: bool, row: dict[str, Any]) -> str:
    needed = row["min_capacity"]
    if fits:
        return f"yes, {units.size(free - needed)} to spare"
    if needed is None or needed <= free:  # it needs more on this card than on a smaller one
        return "no"
    return f"no, {units.size(needed - free)} too small"


def _bounds(known: Bounds) -> str:
    words = f"max load {units.size(known.max_load)}: no allocator needs less"
    if known.plan is None:
        return words
    height = f"{units.size(known.plan.height)} ({units.times(known.plan.height / known.max_load)})"
    optimal = ", which is proven optimal" if known.plan.optimal else ""
    return f"{words}; best plan found, with all lifetimes known: {height}{optimal}"
