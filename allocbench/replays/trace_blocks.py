# SPDX-License-Identifier: Apache-2.0
"""The blocks of a trace: what the details of all of its runs share, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.base.text import one_line
from allocbench.reports.rows.details import Details, table
from allocbench.workloads import ALLOC, FREE, MARK, Trace, lifetimes
from allocbench.workloads.block_origins import BACKWARD_OF, UNKNOWN, origins
from allocbench.workloads.module_hook import MOST_CHARACTERS, MOST_SHAPES, OUTPUT_SHAPES

_MOST_MARKS = 300
_MOST_INSTANTS, _FEWEST_INSTANTS = 200, 8
_MOST_BLOCKS = 8000  # in one address map
_BLOCKS_IN_ALL = 100_000  # in the address maps of one workload
_MOST_OF_PROGRAM = 600_000  # blocks

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TraceBlocks:
    """A trace with n blocks, one for each alloc, in order.

    first, last, size, step, live: int64 (n,): the event of the alloc; that of the free, or the
        length of the trace; requested bytes; how many steps had begun, and the number of live
        blocks, before the alloc.
    live_at_free: int64, the number of live blocks before each free.
    instants: the events at which address maps are drawn.
    most_blocks: the largest number of blocks in one address map.
    """

    name: str
    trace: Trace
    first: Ints
    last: Ints
    size: Ints
    step: Ints
    live: Ints
    live_at_free: Ints
    instants: Ints
    most_blocks: int

    @classmethod
    def of(cls, name: str, trace: Trace, runs: int = 1) -> TraceBlocks:
        """Prepare a valid trace that goes through `runs` allocators."""
        most = min(_MOST_BLOCKS, _BLOCKS_IN_ALL // runs)
        spans = lifetimes(trace)
        first, last = spans.first.astype(np.int64), spans.last.astype(np.int64)
        change = np.zeros(len(trace), np.int64)
        change[trace.op == ALLOC] = 1
        change[trace.op == FREE] = -1
        before = np.cumsum(change) - change
        return cls(
            name,
            trace,
            first,
            last,
            spans.size.astype(np.int64),
            np.zeros(len(first), np.int64) if spans.step is None else spans.step.astype(np.int64),
            before[trace.op == ALLOC],
            before[trace.op == FREE],
            _instants(len(trace), first, last, most),
            most,
        )

    def details(self) -> Details:
        """The tables that are the same for every allocator."""
        program, sites = self._program()
        return {
            "marks": table("marks", self._marks(), workload=self.name),
            "program": table("program", program, workload=self.name),
            "sites": table("sites", sites, workload=self.name),
            "shapes": table("shapes", self._shapes(), workload=self.name),
        }

    def label(self, blocks: Ints) -> list[str]:
        """The operator or phase that asked for each of these blocks; empty where unknown."""
        if self.trace.label is None:
            return [""] * len(blocks)
        labels = [one_line(label) for label in self.trace.labels]
        return [labels[n] for n in self.trace.label[self.first[blocks]].tolist()]

    def _marks(self) -> dict[str, Any]:
        """The marks of a trace; where there are too many, an even selection of its steps."""
        events = np.flatnonzero(self.trace.op == MARK)
        if len(events) > _MOST_MARKS:
            steps = events[self.trace.block[events] == self.trace.step_label]
            events = steps if len(steps) else events
            events = events[:: -(-len(events) // _MOST_MARKS)]
        labels = [one_line(self.trace.labels[n]) for n in self.trace.block[events].tolist()]
        return {"event": events, "label": labels}

    def _program(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of the tables `program` and `sites`."""
        trace, found = self.trace, origins(self.trace)
        kept = self._kept()
        source = found.source[kept]
        kind = found.kind[kept]
        if trace.pool is not None:
            named = np.array(["", *(f"private pool {pool.name}" for pool in trace.pools)], object)
            kind = np.where(kind == UNKNOWN, named[trace.pool[self.first[kept]]], kind)
        columns = {
            "line": trace.line,
            "operator": trace.label,
            "module": trace.module,
            "stack": trace.stack,
        }
        each = pd.DataFrame(
            {
                "kind": kind,
                **{
                    name: 0 if column is None else column[source]
                    for name, column in columns.items()
                },
                "stream": trace.stream[source].astype(np.int64),
                "derived": found.derived[kept],
            }
        )
        site = each.groupby(list(each), sort=False).ngroup().to_numpy()
        sites = each.drop_duplicates()
        labels = np.array([one_line(label) for label in trace.labels] or [""], object)
        texts = {
            name: np.full(len(sites), "", object) if column is None else labels[sites[name]]
            for name, column in columns.items()
        }
        # The label of a recording without operators is a line, too: "train.py:7 step".
        is_line = [
            line != "" and operator.startswith(line.partition(" ")[0])
            for line, operator in zip(texts["line"], texts["operator"], strict=True)
        ]
        texts["operator"] = np.where(is_line, "", texts["operator"])
        before = np.where(sites["derived"], BACKWARD_OF, "").astype(object)
        for name in ("line", "operator"):
            texts[name] = np.where(texts[name] == "", "", before + texts[name])
        program = {
            "first": self.first[kept],
            "last": self.last[kept],
            "size": self.size[kept],
            "step": self.step[kept],
            "site": site,
        }
        return program, {
            "kind": sites["kind"].map(one_line).to_numpy(),
            **texts,
            "stream": sites["stream"].to_numpy(),
            "derived": sites["derived"].to_numpy(),
        }

    def _shapes(self) -> dict[str, list[str]]:
        """The columns of the table `shapes`; a file may have any JSON value in place of shapes."""
        stored = self.trace.provenance.extra.get(OUTPUT_SHAPES)
        shapes = list(stored.items())[:MOST_SHAPES] if isinstance(stored, dict) else []
        return {
            column: [one_line(str(pair[n]))[:MOST_CHARACTERS] for pair in shapes]
            for n, column in enumerate(("module", "shape"))
        }

    def _kept(self) -> Ints:
        """The blocks that a report shows: if they are too many, those alive at the peak, then the
        largest by bytes and lifetime."""
        if len(self.first) <= _MOST_OF_PROGRAM:
            return np.arange(len(self.first))
        peak = int(self.trace.load.argmax())
        weight = self.size.astype(float) * (self.last - self.first)
        weight[(self.first <= peak) & (self.last > peak)] = np.inf
        return np.sort(np.argsort(-weight, kind="stable")[:_MOST_OF_PROGRAM])


def _instants(events: int, first: Ints, last: Ints, most: int) -> Ints:
    """Events at even distances, as many as possible without too many blocks to draw."""
    count = min(_MOST_INSTANTS, max(1, events))
    while True:
        instants = np.unique(np.linspace(0, max(0, events - 1), count).astype(np.int64))
        alive = np.searchsorted(instants, first) < np.searchsorted(instants, last)
        # A run adds instants of its own; a tenth of the blocks is left for them.
        if count <= _FEWEST_INSTANTS or np.count_nonzero(alive) <= most * 9 // 10:
            return instants
        count = max(_FEWEST_INSTANTS, count * 3 // 4)
