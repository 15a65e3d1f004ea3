# SPDX-License-Identifier: Apache-2.0
"""Memory over time of a training program with edits: what the page of `whatif` draws."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from allocbench.questions.edits import Edit, go_together
from allocbench.questions.training_blocks import TrainingBlocks
from allocbench.questions.whatif import MOST_EDITS, Proposal, Proposals, proposal_of

COLUMNS = 400
"""Intervals of a curve."""
_COMBINED = 4


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
    """Requested bytes by kind in COLUMNS intervals of the events of the program as it is.

    Each interval has the bytes at its instant with the most of all kinds together.
    """
    table, events = blocks.table, len(blocks.trace)
    for edit in edits:
        table = edit.apply(table)
    table = table.only((table.size > 0) & (table.freed > table.born))
    ends = np.flatnonzero(table.freed < events)
    instant = np.concatenate(
        [table.freed[ends], table.born]
    )  # what is freed at an instant is first
    order = np.argsort(instant, kind="stable")
    change = np.concatenate([-table.size[ends], table.size])[order]
    kind = blocks.kind[table.origin]
    kinds = np.concatenate([kind[ends], kind])[order]
    load = np.cumsum(change)
    edges = np.linspace(0, events, COLUMNS + 1)
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
