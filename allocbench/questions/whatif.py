# SPDX-License-Identifier: Apache-2.0
"""What if the program were changed: the need of each edit, and the least edits that fit a card."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from allocbench.base import units
from allocbench.base.spec import parse
from allocbench.errors import UsageError
from allocbench.programs.program import ProgramWorkload, load
from allocbench.questions.edits import Edit, edits, go_together
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.replays.runner import Runner
from allocbench.workloads import Trace
from allocbench.workloads.edits_hook import EDITS
from allocbench.workloads.formats import how_to_record
from allocbench.workloads.pytorch_settings import VARIABLES

RANKS = 8
"""GPUs of sharded training, unless another number is asked for."""
MOST_EDITS = 3
"""Edits of one proposal."""
MOST_FITTING = 3
"""Proposals that fit, of those that ask least of the user."""
INTERVALS = 400
"""Of a curve."""
_COMBINED = 4  # families


@dataclass(frozen=True)
class Proposal:
    """Edits that are made together.

    load: bytes that the edited program has live at its peak. need: bytes of the smallest device on
    which the allocator completes it. low, high: the need is likely between these, because the
    order of the events of the edited program is not known exactly. fits: whether the trace
    completes on the card, and `high` does not exceed it; None without a card.
    """

    edits: tuple[Edit, ...]
    load: int
    need: int
    low: int
    high: int
    fits: bool | None
    run: int | None = None
    run_load: int | None = None

    @property
    def made(self) -> dict[str, Any]:
        """What makes the edits in a program that runs; empty if nothing can."""
        if not all(edit.made for edit in self.edits):
            return {}
        return {key: value for edit in self.edits for key, value in edit.made.items()}

    @property
    def name(self) -> str:
        """The names of the edits."""
        return " + ".join(edit.name for edit in self.edits)


@dataclass(frozen=True)
class Proposals:
    """Proposals for a program. need: bytes that it needs as it is. capacity: of the card, or None.

    single: one edit each, by need. fitting: up to MOST_FITTING proposals that fit the card, of at
    most MOST_EDITS edits, those first that ask least of the user; none has all edits of another.
    """

    need: int
    load: int
    capacity: int | None
    single: Sequence[Proposal]
    fitting: Sequence[Proposal] = ()

    @property
    def enough(self) -> Proposal | None:
        """The proposal that fits and asks least of the user, or None."""
        return self.fitting[0] if self.fitting else None

    @property
    def proposals(self) -> Sequence[Proposal]:
        """Those of one edit, then those of several that fit."""
        return [*self.single, *(found for found in self.fitting if len(found.edits) > 1)]


def whatif(
    run: Runner,
    spec: str,
    *,
    ranks: int = RANKS,
    capacity: int | None = None,
    settings: bool = True,
    begin: Callable[[str], None] = lambda name: None,
) -> Proposals:
    """Replay each edit of a program through an allocator.

    ranks: GPUs of sharded training. capacity: bytes of a card that the program should fit, or None.
    settings: whether those of the allocator are edits, too. begin: called with the name of each
    edit before its replay.

    Raises UsageError for a trace of which nothing can be edited, and SpecError.
    """
    trace, blocks = run.trace, TrainingBlocks(run.trace)
    known = [edit for edit in edits(blocks, ranks) if not edit.setting or settings]
    known = [edit for edit in known if _can_be_set(edit, spec)]
    if not known:
        steps = len(blocks.starts) > 1
        missing = "what its blocks are is not" if steps else "no steps of an optimizer are"
        raise UsageError(f"{_of(trace)}{missing} known, so no part of the program can be edited")
    need = _need(run, spec, exactly=True)
    if need == trace.coverage.held:
        held = units.size(need)
        raise UsageError(
            f"{_of(trace)}{held} were reserved before the recording begins, which hides what"
            f" changes save; {how_to_record(trace)}"
        )

    def proposal(chosen: tuple[Edit, ...]) -> Proposal:
        begin(" + ".join(edit.name for edit in chosen))
        return proposal_of(blocks, chosen, spec, run.device, capacity)

    single = sorted((proposal((edit,)) for edit in known), key=lambda found: found.need)
    fitting = list[Proposal]()
    if capacity is not None and need > capacity:
        loads = {found.edits[0].name: found.load for found in single}
        tried = {found.name: found for found in single}
        for chosen in _by_effort(known):
            name = " + ".join(edit.name for edit in chosen)
            # Edits together seldom save more than the sum of what each saves.
            saved = sum(trace.max_load - loads[edit.name] for edit in chosen)
            of_another = any({*found.edits} < {*chosen} for found in fitting)
            if of_another or trace.max_load - saved > capacity:
                continue
            found = tried.get(name) or proposal(chosen)
            if found.fits:
                fitting.append(found)
            if len(fitting) == MOST_FITTING:
                break
    return Proposals(need, trace.max_load, capacity, single, fitting)


def measured(
    program: ProgramWorkload, proposal: Proposal, spec: str, device: str, capacity: int | None
) -> Proposal:
    """The proposal with what a run of the edited program needs; it must be one that can be made.

    Raises as `program.load`.
    """
    trace = load(changed(program, proposal))
    need = _need(Runner(trace, device), with_settings(spec, proposal.edits))
    fits = None if capacity is None else need <= capacity
    return replace(proposal, run=need, run_load=trace.max_load, fits=fits)


def changed(program: ProgramWorkload, proposal: Proposal) -> ProgramWorkload:
    """The program with the edits of a proposal, which must be one that can be made."""
    made, variables = dict(proposal.made), dict(program.settings.variables)
    if setting := made.pop("setting", ""):
        variables |= dict.fromkeys(VARIABLES, setting)
    variables[EDITS] = json.dumps(made)
    settings = replace(program.settings, variables=variables, quiet=True, tell=lambda line: None)
    return replace(program, settings=settings)


def _by_effort(known: Sequence[Edit]) -> Iterator[tuple[Edit, ...]]:
    """All sets of edits that go together, by the hardest one's effort, then by number."""
    chosen = [
        group
        for count in range(1, MOST_EDITS + 1)
        for group in combinations(known, count)
        if go_together(group)
    ]
    return iter(sorted(chosen, key=lambda group: (max(e.effort for e in group), len(group))))


def proposal_of(
    blocks: TrainingBlocks, chosen: tuple[Edit, ...], spec: str, device: str, capacity: int | None
) -> Proposal:
    """The estimate of some edits together. capacity: bytes of a card, or None."""
    trace = edited(blocks, chosen)
    settings = all(edit.setting for edit in chosen)
    need = _need(Runner(trace, device), with_settings(spec, chosen), exactly=settings)
    error = max(edit.error for edit in chosen)
    below = max(edit.below for edit in chosen)
    low = max(round(need * (1 - below)), trace.coverage.held)
    high = round(need * (1 + error))
    fits = None if capacity is None else high <= capacity
    return Proposal(chosen, trace.max_load, need, low, high, fits)


def edited(blocks: TrainingBlocks, chosen: tuple[Edit, ...]) -> Trace:
    """The trace of a program with some edits."""
    table = blocks.table
    for edit in chosen:
        table = edit.apply(table)
    return table.to_trace()


def with_settings(spec: str, chosen: tuple[Edit, ...]) -> str:
    """The allocator with the settings of some edits."""
    parsed = parse(spec)
    options = dict(edit.setting.split(":") for edit in chosen if edit.setting)
    return str(replace(parsed, options={**parsed.options, **options})) if options else spec


def _can_be_set(edit: Edit, spec: str) -> bool:
    """Whether an edit has no setting, or one that the allocator has and nobody has given."""
    name, parsed = edit.setting.partition(":")[0], parse(spec)
    given = {"conf", name} & {*parsed.options}
    return not name or (parsed.name == "caching" and not parsed.inner and not given)


def _need(run: Runner, spec: str, *, exactly: bool = False) -> int:
    need = run.min_capacity(spec) if exactly else run.rough_capacity(spec)
    if need is None:
        raise UsageError(f"{_of(run.trace)}{spec} completes it on no device")
    return need


def _of(trace: Trace) -> str:
    """How an error begins; a trace of a file may have no name."""
    return f"{trace.name}: " if trace.name else ""


def frame(answer: Proposals, workload: str, coverage: str) -> pd.DataFrame:
    """A row for each single edit, by need, then those of several edits that fit.

    edits, how, cost: lists, an element for each edit. load, need, low, high, run, saves: bytes; run
    is null where the edited program was not run. fits: null without a card. chosen: whether these
    edits fit and ask least of the user. coverage: what the trace lacks of its program, or null.
    """
    rows = [
        {
            "workload": workload,
            "edits": [edit.name for edit in proposal.edits],
            "how": [edit.how for edit in proposal.edits],
            "cost": [edit.cost for edit in proposal.edits],
            **{name: getattr(proposal, name) for name in ("load", "need", "low", "high", "run")},
            "saves": answer.need - (proposal.run or proposal.need),
            "fits": proposal.fits,
            "chosen": answer.enough is not None and proposal.edits == answer.enough.edits,
            "coverage": coverage or None,
        }
        for proposal in answer.proposals
    ]
    return pd.DataFrame(rows).astype({"run": "Int64"})


def combined(
    answer: Proposals,
    blocks: TrainingBlocks,
    spec: str,
    device: str,
    begin: Callable[[str], None] = lambda name: None,
) -> list[Proposal]:
    """The proposals of several edits that fit, and all of two or three of the edits that save most.

    The latter are the best of each of the four families that save most. begin: called with the
    names of the edits before each replay.
    """
    best: dict[str, Edit] = {}
    for proposal in sorted(answer.single, key=lambda found: found.need):
        if proposal.need < answer.need:
            best.setdefault(proposal.edits[0].family, proposal.edits[0])
    first = [*best.values()][:_COMBINED]
    chosen = [some for n in range(2, MOST_EDITS + 1) for some in combinations(first, n)]
    found = [proposal for proposal in answer.fitting if len(proposal.edits) > 1]
    known = [{*proposal.edits} for proposal in found]
    for some in chosen:
        if {*some} in known or not go_together(some):
            continue
        begin(" + ".join(edit.name for edit in some))
        found.append(proposal_of(blocks, some, spec, device, answer.capacity))
    return found


def curve(blocks: TrainingBlocks, edits: Sequence[Edit]) -> dict[str, list[int]]:
    """Requested bytes by kind in INTERVALS intervals of the events of the program as it is.

    Each interval has the bytes at its instant with the most of all kinds together.
    """
    table, events = blocks.table, len(blocks.trace)
    for edit in edits:
        table = edit.apply(table)
    table = table.only((table.size > 0) & (table.freed > table.born))
    ends = np.flatnonzero(table.freed < events)
    instant = np.concatenate([table.freed[ends], table.born])  # what is freed comes first
    order = np.argsort(instant, kind="stable")
    change = np.concatenate([-table.size[ends], table.size])[order]
    kind = blocks.kind[table.origin]
    kinds = np.concatenate([kind[ends], kind])[order]
    load = np.cumsum(change)
    edges = np.linspace(0, events, INTERVALS + 1)
    bounds = np.searchsorted(instant[order], edges, side="left")
    bounds[-1] = len(load)
    at = [
        low + int(np.argmax(load[low:high])) if high > low else -1
        for low, high in zip(np.maximum(bounds[:-1] - 1, 0), bounds[1:], strict=True)
    ]
    return {
        str(name): np.where(np.array(at) < 0, 0, np.cumsum(np.where(kinds == name, change, 0))[at])
        .astype(np.int64)
        .tolist()
        for name in dict.fromkeys(kinds.tolist())
    }
