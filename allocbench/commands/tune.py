# SPDX-License-Identifier: Apache-2.0
"""allocbench tune: search the settings of one allocator for a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import label, notes
from allocbench.base.spec import options_of
from allocbench.base.text import upper
from allocbench.commands import options
from allocbench.inputs import DEVICE
from allocbench.output.files import STDOUT, records_written
from allocbench.output.stdout import tell_notes
from allocbench.output.terminal import console, plain_table, progress_bar, say
from allocbench.questions import BUDGET
from allocbench.questions.switching import how
from allocbench.replays.recorded_settings import with_conf
from allocbench.reports.advice.choosing import OTHER_COSTS
from allocbench.reports.advice.coverage import needs
from allocbench.reports.advice.recommending import consequence
from allocbench.reports.rows.assumptions import condition, per_event
from allocbench.reports.rows.results import records

if TYPE_CHECKING:
    import pandas as pd

    from allocbench.questions.best import Best
    from allocbench.questions.tune import Tuned
    from allocbench.replays.runner import Runner

EXAMPLES = (
    "allocbench tune gpt2-train --budget 60",
    "allocbench tune trace.csv --allocator bfc --device sim:24GiB --budget 20",
    "allocbench tune --device null:l4 --steps 10 -- python train.py",
)


def run(
    workload: options.Workload,
    allocator: Annotated[str, typer.Option(metavar="SPEC")] = "caching",
    device: options.Device = DEVICE,
    model: options.Model = None,
    budget: Annotated[int, typer.Option(metavar="N", min=1)] = BUDGET,
    everything: options.Everything = False,
    json: Annotated[str | None, options.json_option("all trials")] = None,
) -> None:
    """Search the settings of an allocator for the smallest device that is enough, then for time.

    The command shows the settings that no other setting beats in both memory and time, and the
    lines that make a program use them. The best setting of caching is that of `recommend`: it keeps
    the default if that fits with 5 % of the device to spare. Of the settings that need the least,
    those whose smallest devices differ by at most 1 % count as equal; the fastest of those is
    named, then the one with the fewest options. Device time on a simulated device is an estimate.
    Host time is measured but not part of the search. After Ctrl-C, what needs the least so far is
    shown.

    Options:
        allocator: The allocator; options that are given here are kept.
        budget: Approximate number of settings to try.
    """
    from allocbench.inputs.question import read
    from allocbench.questions import best, tune

    question = read(
        [workload], [allocator], device, option="--allocator", model=model, outputs=[json]
    )
    tell_notes(question.notes)
    run, device = question.runner(), question.device
    with progress_bar(budget) as begin:
        tuned = tune.tune(run, allocator, budget=budget, begin=begin)
        found = best.of_settings(tuned, run, label(device))
        trials = tune.frame(tuned, run, best.to_use(tuned, found))
    with records_written(trials, json):
        if json != STDOUT:
            title = f"{run.workload} through {allocator} on {label(device)}"
            _print(title, trials, tuned, found, run)
            say(notes(device, run.trace.provenance.device, everything), "dim")


def _print(title: str, trials: pd.DataFrame, tuned: Tuned, found: Best | None, run: Runner) -> None:
    from allocbench.questions import best
    from allocbench.questions.hazards import growing

    if found is not None:
        orders = found.other_orders(found.setting)
        say([*found.advice.lines[:1], *([orders] if orders else [])])
        if found.setting is not None and not found.keeps_setting:
            _print_how(found.setting, run)
    if found is None or (tuned.least and with_conf(tuned.least.spec) != found.setting):
        say([_least(trials, tuned, run)])
        if tuned.least is not None and tuned.helps:
            _print_how(tuned.least.spec, run)
        say(_doubt(tuned))
    if found is None and tuned.least is not None:
        shuffled = best.orders_tried(run)
        say([shuffled.sentence(tuned.least.failed_orders, "what needs the least")])
    now = best.called(tuned.default.spec, run.trace)
    used = dict.fromkeys((with_conf(tuned.default.spec), best.to_use(tuned, found)))
    say(growing(run, [spec for spec in used if spec], label(run.device)))
    console().print()
    stopped = ", interrupted" if tuned.interrupted else ""
    tried = units.count(len(tuned.trials), "setting")
    console().print(_table(f"{title}: the best of {tried}{stopped}", trials, now))


def _print_how(spec: str, run: Runner) -> None:
    """Print how a program uses a setting, and what to check first."""
    from allocbench.questions.hazards import caveats
    from allocbench.replays.recorded_settings import in_force

    console().print(Text(how(in_force(spec, run.trace, version=False))), soft_wrap=True)
    say(f"check first: {line}" for line in caveats(spec, run.trace))


def _table(title: str, trials: pd.DataFrame, now: str) -> Table:
    timed = trials["seconds_per_event_cold"].notna().any()
    host_time = ["host time per event, cold"] if timed else []
    numbers = ("min capacity", "device time per event (estimate)", *host_time)
    table = plain_table(title, *numbers, "settings", right=numbers)
    rows = records(trials)
    shown = ("best", "least", "pareto", "default")
    for row in [row for row in rows if any(row[flag] for flag in shown)]:
        settings = options_of(row["allocator"])
        host, least = row["seconds_per_event_cold"], row["min_capacity"]
        notes = ["best"] if row["best"] else []
        if row["least"]:
            notes.append(_least_of(row, trials))
        notes += [now.split()[1]] * row["default"]
        if row["failures"]:
            notes.append(units.count(row["failures"], "failure"))
        table.add_row(
            units.NOT_AVAILABLE if least is None else units.size(least),
            time.text if (time := per_event(row)) else units.NOT_AVAILABLE,
            *([units.NOT_AVAILABLE if host is None else units.seconds(host)] if timed else []),
            Text(" ".join([settings or "no change", *([f"({'; '.join(notes)})"] * bool(notes))])),
        )
    return table


def _least(trials: pd.DataFrame, tuned: Tuned, run: Runner) -> str:
    """The setting that needs the least, or that none saves more than the default."""
    from allocbench.questions.best import called

    least, default = tuned.least, tuned.default
    where, bound, now = label(run.device), run.trace.coverage.bound, called(default.spec, run.trace)
    if least is None:
        enough = [trial.capacity for trial in tuned.trials if trial.capacity is not None]
        capacity = f"; the best of them {needs(min(enough), bound)}" if enough else ""
        return (
            f"Every setting that was tried fails requests on {where}{capacity}."
            f" With {now}, {units.count(default.failures, 'request')} failed."
        )
    if not tuned.helps:
        need = needs(default.capacity or 0, bound)
        return f"No setting saves more than 1%. {upper(now)} {need}."
    row = next(row for row in records(trials) if row["least"])
    need = row["min_capacity"]
    fits = consequence(need, need <= run.capacity, run.capacity, where, None, bound)
    fits = f" and {fits}" if fits else ""
    card = f" Smallest card: {row['card']}." if row["card"] else ""
    which = "settings that need the least"
    if _least_of(row, trials) != "least":
        which = "simplest of the settings that need the least, or up to 1% more"
    with_least = f"With the {which}, the program {needs(need, bound)}"
    if default.capacity is None:
        return f"{with_least}{fits}.{card} With {now}, no device is enough. To use them:"
    less = units.percent(1 - need / default.capacity)
    before = f", {less} less than {now} ({units.size(default.capacity)})"
    failed = units.count(default.failures, "request")
    fails = "" if default.serves else f" With {now}, {failed} failed here."
    return f"{with_least}{before}{',' if fits else ''}{fits}.{card}{fails} To use them:"


def _least_of(row: Mapping[str, Any], trials: pd.DataFrame) -> str:
    """What to call the setting of a row, if another one needs less, by at most 1%."""
    smallest = trials.loc[trials["pareto"], "min_capacity"].min()
    return "least" if row["min_capacity"] == smallest else "simplest within 1% of the least"


def _doubt(tuned: Tuned) -> list[str]:
    """What other costs of device calls would change about what needs the least."""
    from allocbench.questions.tune import SAME_TIME

    if tuned.least is None or not tuned.rivals:
        return []
    rival = tuned.rivals[0]
    name = options_of(with_conf(rival.spec)) or "the default"
    when = condition(rival.running * SAME_TIME, tuned.least.running)
    return [
        f"Device time is an estimate: {name} makes the program over 5% quicker than this"
        f" {when or OTHER_COSTS}."
    ]
