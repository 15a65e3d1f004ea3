# SPDX-License-Identifier: Apache-2.0
"""Why a trace fails on a device, which blocks are in the way, and which changes help."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pandas as pd

from allocbench import allocators
from allocbench.base import units
from allocbench.base.text import upper
from allocbench.questions import growth, search_space
from allocbench.questions.failure import Failure, before, first_failure, operators
from allocbench.questions.growth import RepeatedGrowth, leak_of
from allocbench.questions.hazards import growing, modelled
from allocbench.replays.runner import Runner, fresh, innermost
from allocbench.reports.advice.coverage import hidden, needs
from allocbench.reports.advice.recommending import consequence
from allocbench.workloads.formats import how_to_record

Kind: TypeAlias = Literal["full", "rounding", "fragmentation", "refused"]


_IN_PIECES = ("fragmentation", "rounding")
"""Kinds of failure in which blocks were in the way."""


@dataclass(frozen=True)
class Attempt:
    """One change that was tried. `completes`: whether the whole trace then completes.

    `passes`: whether the failed request is then served; later ones may still fail.
    """

    spec: str
    passes: bool
    completes: bool


@dataclass(frozen=True, eq=False)
class Explanation:
    """A failed request, the verdict on it, and what was tried.

    kind: "full": the live bytes of the trace exceed the device, with any allocator, when this
        request fails or later. "rounding": they would fit as requested, but not as set aside after
        rounding. "fragmentation": enough is free, but not in one piece. "refused": the device had
        room in one piece, and the allocator could not use it: it has its own limit, or it asks for
        more than the request.
    leak: what accumulates from step to step, if the request would fit without it.
    min_capacity, card: bytes of the smallest device on which this allocator completes the trace,
        and the smallest of the common cards; None if none is enough.
    changes: what was tried, best first; empty if nothing can help.
    """

    failure: Failure
    kind: Kind
    leak: RepeatedGrowth | None
    min_capacity: int | None
    card: str | None
    changes: list[Attempt]

    @property
    def saved_by(self) -> list[Attempt]:
        """The changes with which the whole trace completes."""
        return [change for change in self.changes if change.completes]


def explain(
    run: Runner, allocator: str, begin: Callable[[str], None] = lambda what: None
) -> Explanation | None:
    """Why the first failed request of a trace fails, or None if no request fails.

    begin: called with the name of each of the `STAGES` stages. Raises SpecError.
    """
    begin("replay")
    failure = first_failure(run.trace, allocator, run.device)
    if failure is None:
        return None
    kind = kind_of(failure)
    begin("min capacity")
    enough = run.enough(allocator)
    begin("other settings and allocators")
    changes = [] if kind == "full" else _changes(run, allocator, failure.event)
    return Explanation(
        failure, kind, leak_of_failure(failure), enough["min_capacity"], enough["card"], changes
    )


def leak_of_failure(failure: Failure) -> RepeatedGrowth | None:
    """What accumulates until a request fails, or later, if the program would fit without it."""
    trace, capacity = failure.workload.trace, failure.capacity
    needed = failure.live + failure.requested
    leak = leak_of(trace) if needed <= capacity else None  # what would fill the device later
    if leak and failure.load - leak.bytes <= capacity:
        return leak if leak.counts(trace, failure.load, capacity) else None
    leak = leak_of(trace, failure.event)
    return leak if leak and needed - leak.bytes <= capacity else None


def leak_in_words(leak: RepeatedGrowth, failure: Failure) -> str:
    """What accumulates, and when the device is full."""
    if leak.event == failure.event:
        return growth.sentence(leak)
    return growth.sentence(leak, failure.load, failure.capacity)


STAGES = 3
"""Number of stages of `explain`."""


def kind_of(failure: Failure) -> Kind:
    """Which of the four kinds a failure is."""
    if failure.load > failure.capacity:
        return "full"
    if failure.requested <= failure.room:
        return "refused"
    if failure.allocated + failure.requested > failure.capacity:
        return "rounding"
    return "fragmentation"


def pins(explanation: Explanation) -> pd.DataFrame:
    """The blocks in the way of the cheapest place for the request, in order of address.

    Empty if the request failed for another reason.

    Columns: block (the number of its alloc), address, size (requested bytes), event of its
    alloc, operator, freed (the event, null for never).
    """
    failure = explanation.failure
    workload = failure.workload
    blocks = failure.pins if explanation.kind in _IN_PIECES else failure.pins[:0]
    ends = workload.last[blocks]
    never = len(workload.trace)
    return pd.DataFrame(
        {
            "block": blocks,
            "address": failure.address[blocks],
            "size": workload.size[blocks],
            "event": workload.first[blocks],
            "operator": operators(workload.trace, workload.first[blocks]),
            "freed": pd.array([None if end == never else int(end) for end in ends], "Int64"),
        }
    )


def frame(explanation: Explanation | None) -> pd.DataFrame:
    """The explanation as one row, or no row if nothing failed.

    Columns: event, step, operator, requested, capacity, reserved, allocated, live, load, free,
    largest_free, room (bytes), kind, grows_by (bytes per step, null without a leak), min_capacity,
    card, pins (the numbers of the blocks), saved_by (specs), verdict and coverage (what the trace
    lacks of its program, or null).
    """
    if explanation is None:
        return pd.DataFrame()
    names = (
        "event step operator requested capacity reserved allocated live load free largest_free room"
    )
    row = {name: getattr(explanation.failure, name) for name in names.split()}
    row |= {name: getattr(explanation, name) for name in ("kind", "min_capacity", "card")}
    row["grows_by"] = explanation.leak.rate if explanation.leak else None
    row["pins"] = tuple(pins(explanation)["block"].tolist())
    row["saved_by"] = tuple(change.spec for change in explanation.saved_by)
    row["verdict"] = verdict(explanation)
    row["coverage"] = explanation.failure.workload.trace.coverage.sentence or None
    return pd.DataFrame([row])


def verdict(explanation: Explanation) -> str:
    """The explanation in sentences, with the numbers."""
    failure, leak = explanation.failure, explanation.leak
    size, bound = units.size, failure.workload.trace.coverage.bound
    live, free = size(failure.live), failure.capacity - failure.allocated
    if explanation.kind == "full":
        words = (
            f"the device is full: the program has {'at least ' * bound}{size(failure.load)} in use"
            f" at once, {size(failure.load - failure.capacity)} more than its"
            f" {size(failure.capacity)}; no setting or allocator helps"
        )
    elif explanation.kind == "rounding":
        lost = failure.allocated - failure.live
        words = (
            f"fragmentation inside blocks: rounding adds {size(lost)} to the {live} live;"
            f" without it {size(failure.capacity - failure.live)} would be left for the request"
        )
    elif explanation.kind == "refused":
        words = (
            f"the device had room for {size(failure.room)} more, but the allocator could not use"
            " it: either the allocator has its own limit, or it asks the device for more than the"
            " request"
        )
    else:
        words = (
            f"fragmentation: a request for {size(failure.requested)} fails although {size(free)}"
            f" are free. The allocator holds {size(failure.free)} of them, in blocks of at most"
            f" {size(failure.largest_free)}; the device has {size(failure.room)}"
        )
        if len(failure.pins):
            held = int(failure.workload.size[failure.pins].sum())
            blocks = f"{len(failure.pins):,} block{'s' * (len(failure.pins) > 1)}"
            words += f". The request would fit without {blocks} ({size(held)})"
    if explanation.min_capacity is not None:
        words += f". To complete the trace, this allocator {needs(explanation.min_capacity, bound)}"
        if explanation.card:
            words += f"; the smallest card that is large enough is the {explanation.card}"
    grows = f"{leak_in_words(leak, failure)} " if leak else ""
    return f"{grows}{upper(words)}."


def served(run: Runner, allocator: str, device: str) -> str:
    """What to say if no request fails. device: its name in sentences."""
    coverage, enough = run.trace.coverage, run.enough(allocator)
    if not coverage.events:
        return f"{coverage.sentence}; {how_to_record(run.trace)}"
    need = enough["min_capacity"]
    fits = consequence(need, need <= run.capacity, run.capacity, device, None, coverage.bound)
    words = "no recorded request fails" if coverage.bound else "no request fails"
    if coverage.ends == "failure":
        words = f"the request for {units.size(coverage.request)} that failed is served"
    card = f" Smallest card: {enough['card']}." if enough["card"] else ""
    told = f"It {needs(need, coverage.bound)} and {fits}"
    words += f". {told if need <= run.capacity else hidden(coverage.held)}.{card}"
    more = [f"{upper(line)}." for line in modelled([allocator])]
    return " ".join([words, *growing(run, [allocator], device), *more])


def _changes(run: Runner, allocator: str, event: int) -> list[Attempt]:
    """Every single setting and every other allocator, those that complete the trace first."""
    name = innermost(allocator)
    tried = list(search_space.singles(allocator, run.device))
    tried += [
        other
        for other in allocators.names(allocators.make_device(run.device))
        if other != name and allocators.info(other).candidate
    ]
    passed = before(run.trace, event + 1)
    changes = []
    for spec in tried:
        completes = run.completes(spec)
        passes = completes or allocators.completes(passed, fresh(spec, run.device, run.trace))
        changes.append(Attempt(spec, passes, completes))
    return sorted(changes, key=lambda change: (not change.completes, not change.passes))
