# SPDX-License-Identifier: Apache-2.0
"""The output of `tune --per-phase`: a table of the phases, the verdict and the calls to make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import label, notes
from allocbench.base.spec import options_of
from allocbench.output.files import STDOUT, records_written
from allocbench.output.terminal import console, plain_table, progress_bar, say
from allocbench.questions import per_phase
from allocbench.questions.best import called
from allocbench.questions.hazards import caveats
from allocbench.questions.per_phase import DEFAULT, PerPhase, PhasedTrial
from allocbench.questions.search import Trial
from allocbench.questions.switching import how
from allocbench.replays.recorded_settings import in_force
from allocbench.replays.runner import Runner
from allocbench.reports.advice.coverage import needs
from allocbench.reports.advice.recommending import consequence
from allocbench.reports.rows.assumptions import condition
from allocbench.reports.rows.results import records
from allocbench.workloads.trace import MARK


def tune_by_phase(
    run: Runner,
    allocator: str,
    phases: str | None,
    *,
    budget: int,
    json: str | None,
    everything: bool = False,
) -> None:
    """Search settings for each phase, print them, and write them to `json`, if it is given.

    phases: where they begin, or None to find them in the trace. Raises as `per_phase.phases_of`.
    """
    where = per_phase.phases_of(allocator, run.trace, phases)
    with progress_bar(2 * budget) as begin:
        found = per_phase.tune(
            run.trace,
            allocator,
            run.device,
            where,
            budget=budget,
            begin=begin,
            runner=run,
        )
        table = per_phase.frame(found, run)
    with records_written(table, json):
        if json != STDOUT:
            _print(f"{run.workload} through {allocator} on {label(run.device)}", table, found, run)
            say(notes(run.device, run.trace.provenance.device, everything), "dim")


def _print(title: str, table: pd.DataFrame, found: PerPhase, run: Runner) -> None:
    out = console()
    stopped = ", interrupted" if found.interrupted else ""
    tried = f"{len(found.single.trials):,} settings and {len(found.trials):,} combinations tried"
    out.print(Text(_verdict(found, run)))
    for line in _lines(found, run):
        out.print(Text(line), soft_wrap=not line.startswith("check first"))
    out.print()
    out.print(_table(f"{title}: {tried}{stopped}", table))
    out.print(Text(_phases(table)))


def _phases(table: pd.DataFrame) -> str:
    """Where the phases begin, and their largest loads."""
    rows = [row for row in records(table) if row["arrangement"] == DEFAULT]
    return "phases: " + ", ".join(
        f"{row['phase']} from event {row['begin']:,} (max load {units.size(row['max_load'])})"
        for row in rows
    )


def _table(title: str, table: pd.DataFrame) -> Table:
    numbers = ("reserved", "wasted", "min capacity", "device time per\nevent (estimate)")
    drawn = plain_table(title, "", "phase", *numbers, "settings", right=numbers)
    last = ""
    for row in records(table):
        begins = row["arrangement"] != last
        if begins and last:
            drawn.add_section()
        last = row["arrangement"]
        least = row["min_capacity"]
        settings = options_of(row["allocator"])
        emptied = row["calls"].startswith("torch.cuda.empty_cache()")
        drawn.add_row(
            last if begins else "",
            row["phase"],
            units.size(row["peak_reserved"]),
            units.NOT_AVAILABLE if row["wasted"] is None else units.size(row["wasted"]),
            (units.NOT_AVAILABLE if least is None else units.size(least)) if begins else "",
            units.seconds_range(
                row["device_seconds_per_event_low"], row["device_seconds_per_event_high"]
            )
            if begins
            else "",
            Text((settings.removeprefix("conf=") or "none") + ", emptied first" * emptied),
        )
    return drawn


def _verdict(found: PerPhase, run: Runner) -> str:
    where, bound = label(run.device), run.trace.coverage.bound
    now = called(found.single.default.spec, run.trace)
    single, default, plan = found.single.least, found.single.default, found.best
    if plan is None and single is None:
        return (
            f"Every setting that was tried fails requests on {where}."
            f" With {now}, {units.count(default.failures, 'request')} failed."
        )
    if not found.helps or plan is None:
        kept = single or default
        need = kept.capacity or 0
        fits = consequence(need, True, run.capacity, where, None, bound)
        which = now if kept == default else "one setting for the whole program"
        return (
            f"Settings by phase do not help: {which} is as good. It {needs(need, bound)} and"
            f" {fits}."
        )
    need = plan.capacity or 0
    fits = consequence(need, True, run.capacity, where, None, bound)
    words = f"With settings by phase, the program {needs(need, bound)} and {fits}."
    if single is None:
        return f"{words} With one setting for all phases, requests fail. To use them:"
    gains = ", ".join([_memory(plan, single), *_device_time(plan, single)])
    before = units.size(single.capacity or 0)
    return f"{words} Compared with the best single setting ({before}): {gains}."


def _device_time(plan: Trial, single: Trial) -> list[str]:
    """How the device times differ, and whether that depends on the assumed costs, if they do."""
    if plan.time.undecided(single.time):
        when = condition(plan.time, single.time)
        return [f"less device time (estimate) {when or 'with some of the assumed costs'}"]
    if plan.device_seconds < single.device_seconds:
        less = units.percent(1 - plan.device_seconds / single.device_seconds)
        return [f"{less} less device time (estimate)"]
    if plan.device_seconds > single.device_seconds:
        more = units.percent(plan.device_seconds / single.device_seconds - 1)
        return [f"{more} more device time (estimate)"]
    return []


def _memory(plan: PhasedTrial, single: Trial) -> str:
    change = (plan.capacity or 0) / (single.capacity or 1) - 1
    if not change:
        return "the same memory"
    return f"{units.percent(abs(change))} {'less' if change < 0 else 'more'} memory"


def _lines(found: PerPhase, run: Runner) -> Iterator[str]:
    """How to use what is best."""
    if found.helps and found.best is not None:
        names = {phase.begin: phase.name for phase in found.phases}
        marks = (run.trace.op == MARK) & (run.trace.block == run.trace.step_label)
        steps = {int(event): n + 1 for n, event in enumerate(np.flatnonzero(marks))}
        first = found.best.plan[0].spec
        yield f"before the program starts ({found.phases[0].name}):"
        yield from _indented(how(in_force(first, run.trace, version=False)).splitlines())
        for change in found.best.changes:
            step = f"step {steps[change.event]:,}, " if change.event in steps else ""
            yield f"before {step}event {change.event:,}, where {names[change.event]} begins:"
            yield from _indented(per_phase.calls(change))
        specs = {choice.spec for choice in found.best.plan}
    elif found.single.least is not None and found.single.helps:
        yield how(in_force(found.single.least.spec, run.trace, version=False))
        specs = {found.single.least.spec}
    else:
        return
    for line in dict.fromkeys(line for spec in sorted(specs) for line in caveats(spec, run.trace)):
        yield f"check first: {line}"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
