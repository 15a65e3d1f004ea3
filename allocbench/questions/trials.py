# SPDX-License-Identifier: Apache-2.0
"""Everything that `check` tries for a trace on a device, and what its answer assumes."""

from collections.abc import Iterator

from allocbench.base import units
from allocbench.base.cards import cards, notes
from allocbench.questions import ORDERS
from allocbench.questions.best import Best
from allocbench.questions.hazards import modelled
from allocbench.questions.whatif import Proposals
from allocbench.replays.capacity import STEP
from allocbench.replays.recorded_settings import conf, in_force, with_conf
from allocbench.replays.runner import Runner
from allocbench.reports.advice.check import ORDER, RemedyKind, Rest, TriedChange, upper
from allocbench.reports.advice.choosing import kind
from allocbench.reports.advice.recommending import LOSSES
from allocbench.reports.rows.results import records


def rest(run: Runner, allocator: str, found: Best, edited: Proposals | str) -> Rest:
    """What was tried, and what is assumed.

    allocator: the user's spec. found: what `best` says. edited: what `whatif` says, or why no part
    of the program can be edited.
    """
    trials = [*_compared(found, allocator), *_searched(run, found), *_cards(run, allocator)]
    if not isinstance(edited, str):
        trials += _edits(edited, run.capacity)
    trials.sort(key=lambda one: (ORDER.index(one.kind), one.need is None, one.need or 0))
    return Rest(tuple(trials), tuple(_assumed(run, allocator, found, edited)))


def _compared(found: Best, allocator: str) -> Iterator[TriedChange]:
    """The settings and allocators that `best` compares."""
    for row in records(found.rows):
        spec, orders = row["allocator"], row["failed_orders"]
        how = kind(spec)
        what: RemedyKind = "allocator" if how in LOSSES else "setting"
        note = ""
        if row["failures"]:
            note = f"{units.count(row['failures'], 'request')} fail{'s' * (row['failures'] == 1)}"
        elif orders:
            note = f"fails with the steps in {orders} of {found.orders.tried} other orders"
        elif spec == with_conf(allocator):
            note = "as it is"
        fits = not row["failures"] and not orders
        yield TriedChange(what, spec, "replay", row["min_capacity"], fits, note)
    for spec, reason in found.excluded.items():
        yield TriedChange("setting", spec, "replay", None, False, reason)


def _searched(run: Runner, found: Best) -> Iterator[TriedChange]:
    """The settings of the search that `best` does not compare, each with its need."""
    known = {*found.rows["allocator"], *found.excluded}
    for trial in found.tuned.trials if found.tuned else ():
        spec = with_conf(trial.spec)
        if spec not in known:
            fits = not trial.failures and all(
                order.completes(trial.spec) for order in run.other_orders(ORDERS, 0)
            )
            yield TriedChange("setting", spec, "replay", run.rough_capacity(trial.spec), fits)


def _edits(edited: Proposals, capacity: int) -> Iterator[TriedChange]:
    for one in edited.proposals:
        costs = "; ".join(edit.cost for edit in one.edits)
        yield TriedChange("edit", one.name, "estimate", one.need, one.high <= capacity, costs)


def _cards(run: Runner, allocator: str) -> Iterator[TriedChange]:
    """All cards, with the program as it is."""
    need, enough = run.min_capacity(allocator), set(run.cards(allocator))
    for card in cards():
        yield TriedChange("card", card.name, "replay", need, card.name in enough)


def _assumed(run: Runner, allocator: str, found: Best, edited: Proposals | str) -> Iterator[str]:
    trace = run.trace
    settings = conf(in_force(allocator, trace)) or "none"
    yield f"The program's settings of PyTorch's allocator: {settings}."
    version = trace.provenance.torch
    if version:
        yield f"The recording is of PyTorch {version}, and its rules apply."
    if trace.coverage.whole:
        yield "The recording has the program from its first request to its last."
    yield (
        f"The need is the smallest multiple of {units.size(STEP)} on which a replay completes; that"
        " of settings which the search did not pursue is up to 0.5% larger."
    )
    if found.tuned is None:
        yield (
            "Other settings were not searched: the program has room, or its largest load is more"
            " than the device has."
        )
    if shuffled := found.other_orders(found.advice.chosen):
        yield shuffled
    if isinstance(edited, str):
        yield f"No edit was tried: {edited}."
    else:
        yield (
            "The need of an edit is an estimate, because the order of the events of an edited"
            " program is not known; it counts as enough if the upper end of its range is."
        )
    yield from notes(run.device, trace.provenance.device)
    for line in modelled([str(spec) for spec in found.rows["allocator"]]):
        yield f"{upper(line)}."
