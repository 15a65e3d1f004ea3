# SPDX-License-Identifier: Apache-2.0
"""How much memory a trace needs with each allocator, and the cards that have enough."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from allocbench import allocators
from allocbench.allocators import PlanResult
from allocbench.allocators.planning import TIME_LIMIT
from allocbench.base.cards import find
from allocbench.questions.occupancy import Outside, occupancy
from allocbench.questions.tune import EXPANDABLE
from allocbench.replays.recorded_settings import with_conf
from allocbench.replays.runner import Runner
from allocbench.workloads import Trace, lifetimes

_FILLING = ("reserved", "context", "libraries", "nccl", "other")
_BYTES = ("min_capacity", "max_load", "plan_height", "fails_above", *_FILLING)
_ALIGNMENT = 256  # bytes: that of every allocator
_NOTHING_SAID = Outside()
_PYTORCH = "caching"


def with_expandable(specs: Sequence[str]) -> list[str]:
    """All strategies: PyTorch's own first, then with expandable segments, then the others."""
    if _PYTORCH not in specs:
        return list(specs)
    return [_PYTORCH, with_conf(EXPANDABLE), *(spec for spec in specs if spec != _PYTORCH)]


@dataclass(frozen=True)
class Bounds:
    """A lower bound for every allocator, and a plan made with all lifetimes known. Bytes.

    `plan` is None if no search was made.
    """

    max_load: int
    plan: PlanResult | None


def bounds(trace: Trace, time_limit: float = TIME_LIMIT) -> Bounds:
    """Max load, and the exact planner's best plan within a time limit in seconds; 0: no plan."""
    if not time_limit or not trace.allocs:
        return Bounds(trace.max_load, None)
    blocks = lifetimes(trace)
    plan = allocators.plan(
        blocks.size, blocks.first, blocks.last, alignment=_ALIGNMENT, time_limit=time_limit
    )
    return Bounds(trace.max_load, plan)


def fit(
    run: Runner,
    specs: Sequence[str],
    known: Bounds,
    outside: Outside = _NOTHING_SAID,
    begin: Callable[[str], None] = lambda spec: None,
) -> pd.DataFrame:
    """The smallest device on which each allocator completes the trace: a row for each spec.

    min_capacity, max_load, plan_height: bytes. Null if no device up to `capacity.LIMIT` is enough,
        or if no plan was searched for.
    overhead: min_capacity / max_load.
    fails_above: bytes of the largest device above min_capacity that was too small nevertheless;
        null if every larger one that was tried was enough.
    card, cards: the smallest of the common cards on which the trace completes, and all of them;
        each was tried.
    reserved, context, libraries, nccl, other: bytes that fill the smallest card, see
        `occupancy.Occupancy`; null without a card.
    coverage: what the trace lacks of its program, so that it may need more; null if nothing.

    run: on a device whose options apply, except for its capacity. known: the result of `bounds`.
    outside: what is in use on a card outside of the allocator. begin: called with each spec before
    its search. Raises SpecError.
    """
    rows = []
    for spec in specs:
        begin(spec)
        least, cards = run.min_capacity(spec), run.cards(spec, outside.free)
        filling = dict[str, int | None].fromkeys(_FILLING)
        if cards and run.simulated:
            filled = occupancy(run, spec, find(cards[0])[0], outside)
            filling = {"reserved": filled.reserved, **filled.parts}
        rows.append(
            {
                "workload": run.workload,
                "allocator": spec,
                "candidate": run.counted(spec)["candidate"],
                "min_capacity": least,
                "max_load": known.max_load,
                "plan_height": known.plan.height if known.plan else None,
                "overhead": least / known.max_load if least and known.max_load else None,
                "fails_above": max(run.boundary(spec, above=True).fails_above, default=None),
                "card": cards[0] if cards else None,
                "cards": cards,
                **filling,
                "coverage": run.trace.coverage.sentence or None,
            }
        )
    return pd.DataFrame(rows).astype(dict.fromkeys(_BYTES, "Int64") if rows else {})
