# SPDX-License-Identifier: Apache-2.0
"""allocbench tune: settings of one allocator that suit a workload."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer
from rich.table import Table
from rich.text import Text

from allocbench import inputs, options
from allocbench.errors import UsageError
from allocbench.keeping import records_written
from allocbench.outputs import STDOUT, check_outputs
from allocbench.questions.switching import how
from allocbench.reports import units
from allocbench.reports.results import records
from allocbench.terminal import console, plain_table, progress_bar

if TYPE_CHECKING:
    from allocbench.questions.tune import Tuned

EXAMPLES = (
    "allocbench tune gpt2-train --budget 60",
    "allocbench tune trace.csv --allocator bfc --device sim:24GiB --budget 20 --seed 1",
)
_BUDGET = 200


def run(
    workload: options.Workload,
    allocator: Annotated[
        str,
        typer.Option(metavar="SPEC", help="The allocator; the options that it is given stay."),
    ] = "caching",
    device: options.Device = options.DEVICE,
    model: options.Model = None,
    budget: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many settings are tried, about.")
    ] = _BUDGET,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Equal seeds give equal results.")
    ] = 0,
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write all trials as JSON; - is stdout."),
    ] = None,
) -> None:
    """Search the settings of an allocator for little memory and little time.

    Shows the settings that no other beats in both peak reserved bytes and device time, and the
    line that makes a program use the first of them. Device time on a simulated device is an
    estimate; host time is measured, and no part of the search. Interrupted with ctrl-C it shows
    the best so far.
    """
    tuning = tuner()
    inputs.check_specs("--allocator", [allocator], device)
    check_outputs(json)
    ((name, trace),) = inputs.load_all([workload], model).items()
    with progress_bar(budget) as begin:
        tuned = tuning.tune(trace, allocator, device, budget=budget, seed=seed, begin=begin)
    found = tuning.frame(tuned, trace, device)
    with records_written(found, json):
        if json != STDOUT:
            _print(f"{name} through {allocator} on {device}", found, tuned)


def tuner() -> ModuleType:
    """The module `questions.tune`; raises UsageError when what it needs is not installed."""
    try:
        from allocbench.questions import tune
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from error
    return tune


def _print(title: str, found: pd.DataFrame, tuned: Tuned) -> None:
    out = console()
    stopped = ", interrupted" if tuned.interrupted else ""
    out.print(_table(f"{title}: {len(tuned.trials):,} settings tried{stopped}", found))
    out.print(Text(_verdict(tuned)))
    if tuned.best is not None and tuned.helps:
        out.print(Text(how(tuned.best.spec)), soft_wrap=True)


def _table(title: str, found: pd.DataFrame) -> Table:
    numbers = ("peak reserved", "device time per event (estimate)", "host time per event")
    table = plain_table(title, *numbers, "settings", right=numbers)
    rows = records(found)
    for row in [row for row in rows if row["pareto"] or row["default"]]:
        _, _, settings = row["allocator"].partition(":")
        host = row["seconds_per_event"]
        table.add_row(
            units.size(row["peak_reserved"]) + ("!" if row["failures"] else ""),
            units.seconds(row["device_seconds_per_event"]),
            units.NOT_AVAILABLE if host is None else units.seconds(host),
            Text(
                (settings or "defaults") + (" (start)" if row["default"] else ""), overflow="fold"
            ),
        )
    return table


def _verdict(tuned: Tuned) -> str:
    best, default = tuned.best, tuned.default
    if best is None:
        return f"Every setting tried fails requests; by default {default.failures:,} fail."
    if default.failures:
        return f"By default {default.failures:,} requests fail; with this none does:"
    before, after = units.size(default.peak_reserved), units.size(best.peak_reserved)
    if not tuned.helps:
        return f"The default is already best: it reserves {before}, and nothing tried clearly less."
    less = units.percent(1 - best.peak_reserved / default.peak_reserved)
    return f"Least memory, {after} where the default takes {before} ({less} less):"
