# SPDX-License-Identifier: Apache-2.0
"""Why a trace fails on a device, which blocks are in the way, and which changes help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pandas as pd

from allocbench import allocators
from allocbench.base import units
from allocbench.questions import search_space
from allocbench.questions.failure import Failure, before, first_failure, operators
from allocbench.questions.growth import Growth, growths
from allocbench.replays.runner import Runner, fresh, innermost
from allocbench.workloads import Trace

Kind: TypeAlias = Literal["full", "rounding", "fragmentation", "refused"]


_IN_PIECES = ("fragmentation", "rounding")
"""Kinds of failure in which blocks were in the way."""


@dataclass(frozen=True)
class Change:
    """One change that was tried. `completes`: whether the whole trace then completes.

    `passes`: whether the failed request is then served; later ones may still fail.
    """

    spec: str
    passes: bool
    completes: bool


@dataclass(frozen=True, eq=False)
class Explanation:
    """A failed request, the verdict on it, and what was tried.

    kind: "full": live bytes and the request exceed the device, with any allocator. "rounding": they
        would fit as requested, but not as set aside after rounding. "fragmentation": enough is
        free, but not in one piece. "refused": the device had room in one piece, and the allocator
        could not use it: it has its own limit, or it asks for more than the request.
    growths: what accumulates from step to step.
    min_capacity, card: bytes of the smallest device on which this allocator completes the trace,
        and the smallest of the common cards; None if none is enough.
    changes: what was tried, best first; empty if nothing can help.
    """

    failure: Failure
    kind: Kind
    growths: list[Growth]
    min_capacity: int | None
    card: str | None
    changes: list[Change]

    @property
    def saved_by(self) -> list[Change]:
        """The changes with which the whole trace completes."""
        return [change for change in self.changes if change.completes]

    @property
    def leaks(self) -> bool:
        """Whether the request would fit, by bytes, without what accumulates."""
        grown = sum(growth.bytes for growth in self.growths)
        return grown > 0 and self.failure.live - grown + self.failure.requested <= (
            self.failure.capacity
        )


def explain(
    trace: Trace,
    allocator: str,
    device: str,
    *,
    begin: Callable[[str], None] = lambda what: None,
    runner: Runner | None = None,
) -> Explanation | None:
    """Why the first failed request of a trace fails, or None if no request fails.

    begin: called with the name of each of the `STAGES` stages. runner: of this trace and device, if
    one exists. Raises SpecError.
    """
    run = runner or Runner(trace, device)
    begin("replay")
    failure = first_failure(trace, allocator, device)
    if failure is None:
        return None
    kind = kind_of(failure)
    begin("min capacity")
    enough = run.enough(allocator)
    begin("other settings and allocators")
    changes = [] if kind == "full" else _changes(run, allocator, failure.event)
    return Explanation(
        failure, kind, growths(failure), enough["min_capacity"], enough["card"], changes
    )


STAGES = 3
"""Number of stages of `explain`."""


def kind_of(failure: Failure) -> Kind:
    """Which of the four kinds a failure is."""
    if failure.live + failure.requested > failure.capacity:
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
            "operator": operators(workload, blocks),
            "freed": pd.array([None if end == never else int(end) for end in ends], "Int64"),
        }
    )


def frame(explanation: Explanation | None) -> pd.DataFrame:
    """The explanation as one row, or no row if nothing failed.

    Columns: event, step, operator, requested, capacity, reserved, allocated, live, free,
    largest_free, room (bytes), kind, leaks, min_capacity, card, pins (the numbers of the blocks),
    saved_by (specs) and verdict.
    """
    if explanation is None:
        return pd.DataFrame()
    names = "event step operator requested capacity reserved allocated live free largest_free room"
    row = {name: getattr(explanation.failure, name) for name in names.split()}
    row |= {name: getattr(explanation, name) for name in ("kind", "leaks", "min_capacity", "card")}
    row["pins"] = tuple(pins(explanation)["block"].tolist())
    row["saved_by"] = tuple(change.spec for change in explanation.saved_by)
    return pd.DataFrame([row | {"verdict": verdict(explanation)}])


def verdict(explanation: Explanation) -> str:
    """The explanation in sentences, with the numbers."""
    failure = explanation.failure
    size = units.size
    live, free = size(failure.live), failure.capacity - failure.allocated
    if explanation.kind == "full":
        short = failure.live + failure.requested - failure.capacity
        words = (
            f"the device is full: {live} live and {size(failure.requested)} requested are"
            f" {size(short)} more than its {size(failure.capacity)}; no allocator can serve this"
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
        words += f". To complete the trace, this allocator needs {size(explanation.min_capacity)}"
        if explanation.card:
            words += f"; the smallest card that is large enough is the {explanation.card}"
    return f"{words[0].upper()}{words[1:]}.{_growing(explanation)}"


def _growing(explanation: Explanation) -> str:
    if not explanation.growths:
        return ""
    first = explanation.growths[0]
    grown = sum(growth.bytes for growth in explanation.growths)
    where = f"{first.steps} steps" if first.of_steps else f"{first.steps} stretches of the trace"
    by = f" by {first.operator}" if first.operator else ""
    more = (
        f", and {len(explanation.growths) - 1} more groups" if len(explanation.growths) > 1 else ""
    )
    end = (
        "without them, the request would fit"
        if explanation.leaks
        else "without them, the request would still fail"
    )
    return (
        f" A leak, or a cache that grows: {first.blocks:,} blocks of {units.size(first.size)}{by}"
        f" from {where} are never freed{more}, {units.size(grown)} in all; {end}."
    )


def _changes(run: Runner, allocator: str, event: int) -> list[Change]:
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
        changes.append(Change(spec, passes, completes))
    return sorted(changes, key=lambda change: (not change.completes, not change.passes))
