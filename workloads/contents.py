# SPDX-License-Identifier: Apache-2.0
"""What is in a trace: counts of its events, and its largest blocks, from one reading."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.base.trace import EventArrays
from allocbench.workloads import ALLOC, FREE, MARK, AnyTrace
from allocbench.workloads.distribution import Distribution
from allocbench.workloads.modelled_workspaces import modelled_in


@dataclass(frozen=True)
class LargeBlock:
    """A block: its bytes, the events of its alloc and of its free, its id and its label.

    freed: None if it is alive at the end. number: of the block while it is alive.
    """

    size: int
    event: int
    block: int
    label: int | None
    number: int
    freed: int | None = None


@dataclass
class Contents:
    """Counts of a trace.

    events: by op. allocs_of_pool: by private pool, from 0 on. marks: by label. blocks: one more
    than the largest id of a block. sizes: of the allocs, bytes. modelled: as
    `workloads.modelled_workspaces.modelled` returns it. largest: the largest blocks, the largest
    first; of equal ones the latest.
    """

    events: Counter[int] = field(default_factory=Counter)
    allocs_of_pool: Counter[int] = field(default_factory=Counter)
    marks: Counter[int] = field(default_factory=Counter)
    blocks: int = 0
    sizes: Distribution = field(default_factory=Distribution)
    modelled: dict[str, tuple[int, int]] = field(default_factory=dict)
    largest: list[LargeBlock] = field(default_factory=list)


def contents(trace: AnyTrace, largest: int) -> Contents:
    """Count what is in a valid trace, and find so many of its largest blocks."""
    found = Contents()
    first = 0
    for part in trace.parts(labels=True):
        is_alloc = part.op == ALLOC
        found.events.update(_counts(part.op))
        found.marks.update(_counts(part.block[part.op == MARK]))
        found.sizes.add(part.size[is_alloc])
        ids = part.id[part.op <= FREE]
        if len(ids):
            found.blocks = max(found.blocks, int(ids.max()) + 1)
        if part.pool is not None:
            found.allocs_of_pool.update(_counts(part.pool[is_alloc]))
        for rule, numbers in modelled_in(part, trace.labels).items():
            count, total = found.modelled.get(rule, (0, 0))
            found.modelled[rule] = count + numbers[0], total + numbers[1]
        found.largest = _largest(found.largest, part, first, largest)
        first += len(part.op)
    return found


def _counts(values: NDArray[Any]) -> dict[int, int]:
    distinct, counts = np.unique(values, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))


def _largest(
    before: list[LargeBlock], part: EventArrays, first: int, most: int
) -> list[LargeBlock]:
    """The largest blocks of the parts so far and of the next; it begins at event `first`."""
    held = [_freed_in(part, old, -1, first) if old.freed is None else old for old in before]
    enough = held[-1].size if len(held) == most else 0
    allocs = np.flatnonzero((part.op == ALLOC) & (part.size >= enough))
    order = np.argsort(part.size[allocs], kind="stable")[::-1]
    for event in allocs[order[:most]].tolist():
        label = None if part.label is None else int(part.label[event])
        sizes = int(part.size[event]), first + event, int(part.id[event])
        held.append(
            _freed_in(part, LargeBlock(*sizes, label, int(part.block[event])), event, first)
        )
    return sorted(held, key=lambda block: (block.size, block.event), reverse=True)[:most]


def _freed_in(part: EventArrays, held: LargeBlock, after: int, first: int) -> LargeBlock:
    """The block with its free, if that is after an event of the part."""
    later = (part.block[after + 1 :] == held.number) & (part.op[after + 1 :] == FREE)
    frees = np.flatnonzero(later)
    return replace(held, freed=first + after + 1 + int(frees[0])) if len(frees) else held
