# SPDX-License-Identifier: Apache-2.0
"""The blocks of a trace as a table that can be changed, and the trace of such a table."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.base.trace import Layout
from allocbench.workloads.trace import ALLOC, FREE, TRIM, Trace, spans

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BlockTable:
    """Blocks, one per element of each array, in any order.

    trace: where they come from; its marks, trims and events of pools stay where they are.
    origin: int64 (b,), the number of the block of `trace` that each one is, or is a copy of, in the
        order of the allocs. A copy takes its stream, pool, labels and all else from there.
    born, freed: float64 (b,), instants. An event of `trace` happens at the instant of its index;
        fractions lie between two events. A block is freed never if `freed` is `len(trace)` or more.
    size: int64 (b,), requested bytes.
    trims: instants at which the program also gives the cache back.
    """

    trace: Trace
    origin: Ints
    born: Floats
    freed: Floats
    size: Ints
    trims: tuple[float, ...] = ()

    @classmethod
    def of(cls, trace: Trace) -> BlockTable:
        """The blocks of a valid trace, in the order of their allocs."""
        allocs, ends = spans(trace.op, trace.block)
        size = trace.size[allocs].astype(np.int64)
        return cls(
            trace, np.arange(len(allocs)), allocs.astype(np.float64), ends.astype(np.float64), size
        )

    def __len__(self) -> int:
        return len(self.origin)

    def only(self, kept: Mask) -> BlockTable:
        """The table without the other blocks."""
        return self._taken(np.flatnonzero(kept))

    def ending(self, index: Ints, at: Floats) -> BlockTable:
        """The table with some blocks that are freed at these instants, if not before."""
        freed = self.freed.copy()
        freed[index] = np.minimum(freed[index], at)
        return replace(self, freed=freed)

    def divided(self, which: Mask, parts: int) -> BlockTable:
        """The table with some blocks of a part of their size, rounded up."""
        return replace(self, size=np.where(which, -(-self.size // parts), self.size))

    def with_copies(
        self, of: Ints, born: Floats, freed: Floats, size: Ints | None = None
    ) -> BlockTable:
        """The table with copies of blocks at its end. of: their indices. size: default: theirs."""
        copies = replace(self._taken(of), born=born, freed=freed)
        copies = copies if size is None else replace(copies, size=size)
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(copies, name)]) for name in _ARRAYS
        }
        return replace(self, **joined)

    def to_trace(self) -> Trace:
        """A valid trace of the blocks that have a size and a life, without times."""
        trace, n = self.trace, len(self.trace)
        blocks = self.only((self.size > 0) & (self.freed > self.born))
        allocs, ends = spans(trace.op, trace.block)
        source = allocs[blocks.origin]
        freed = np.flatnonzero(blocks.freed < n)
        end = ends[blocks.origin[freed]]
        others = np.flatnonzero(trace.op > FREE)
        trims = np.array(self.trims, np.float64)

        # An added trim takes the stream of the first event; nothing reads its labels.
        event = np.concatenate(
            [source, np.where(end < n, end, source[freed]), others, np.zeros(len(trims), np.int64)]
        )
        number = np.argsort(np.argsort(blocks.born, kind="stable"), kind="stable")
        zeros = np.zeros(len(trims), np.int64)
        block = np.concatenate([number, number[freed], trace.block[others], zeros])
        size = np.concatenate([blocks.size, np.zeros(len(event) - len(blocks), np.int64)])
        op = np.concatenate(
            [
                np.full(len(blocks), ALLOC),
                np.full(len(freed), FREE),
                trace.op[others],
                np.full(len(trims), TRIM),
            ]
        )
        instant = np.concatenate([blocks.born, blocks.freed[freed], others, trims])
        order = np.lexsort((op != FREE, instant))
        event = event[order]
        changed = replace(
            trace,
            op=op[order].astype(np.uint8),
            block=block[order].astype(np.uint32),
            size=size[order].astype(np.uint64),
            stream=trace.stream[event],
            pool=None if trace.pool is None else trace.pool[event],
            time_ns=None,
            layout=self._layout(blocks),
            **trace.named(lambda column: column[event]),
        )
        changed.validate()
        return changed

    def _layout(self, blocks: BlockTable) -> Layout | None:
        """The layout of the trace if its blocks still come first and have their sizes."""
        layout = self.trace.layout
        if layout is None:
            return None
        first = np.argsort(blocks.born, kind="stable")[: len(layout.block_size)]
        same = np.array_equal(blocks.origin[first], np.arange(len(layout.block_size)))
        requested = self.trace.size[: len(layout.block_size)]
        return layout if same and np.array_equal(blocks.size[first], requested) else None

    def _taken(self, index: Ints) -> BlockTable:
        taken: dict[str, Any] = {name: getattr(self, name)[index] for name in _ARRAYS}
        return replace(self, **taken)


_ARRAYS = tuple(field.name for field in fields(BlockTable))[1:-1]
