# SPDX-License-Identifier: Apache-2.0
"""Random events through every strategy, each block judged: `make test-long EVENTS=10000000`.

Two judges watch: the `check` wrapper, and one in Python that sees only where the replay says that
each block was placed. It shares no code with the allocators or the wrapper. The exit code is 1 if
a rule was broken.
"""

import argparse
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, Trace
from tests import random_events

ALIGNMENT = 256
_EVENTS_AT_ONCE = 1 << 16


class PlacementJudge:
    """Follows a trace and the placements of its allocs, which arrive in batches.

    Raises AssertionError for a block that is smaller than its request, not aligned, or overlaps a
    live block.
    """

    def __init__(self, trace: Trace) -> None:
        self.served = self.refused = self.frees = self.requested = self.peak_requested = 0
        self._events = _events(trace)
        self._live: dict[int, tuple[int, int, int]] = {}  # segment, offset, requested bytes
        self._begins: defaultdict[int, list[int]] = defaultdict(list)  # by segment; sorted
        self._ends: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def __call__(self, placements: dict[str, Any]) -> None:
        columns = (placements[name].tolist() for name in ("block", "segment", "offset", "size"))
        for block, segment, offset, size in zip(*columns, strict=True):
            named, requested = self._next_alloc()
            assert named == block, "placements are in the order of the trace"
            if segment < 0:
                self.refused += 1
                continue
            assert size >= requested, f"block {block} has {size} bytes of {requested}"
            assert offset % ALIGNMENT == 0, f"block {block} is at offset {offset}"
            self._add(block, segment, offset, size)
            self._live[block] = segment, offset, requested
            self.served += 1
            self.requested += requested
            self.peak_requested = max(self.peak_requested, self.requested)

    def finish(self) -> None:
        """Follow the frees after the last alloc."""
        assert self._next_alloc() == (-1, 0), "every alloc has a placement"

    def _next_alloc(self) -> tuple[int, int]:
        """The next alloc's block and requested bytes, after the frees before it; -1 if none."""
        for op, block, size in self._events:
            if op == ALLOC:
                return block, size
            if op == FREE and block in self._live:  # otherwise its request was refused
                self._remove(*self._live.pop(block))
        return -1, 0

    def _add(self, block: int, segment: int, offset: int, size: int) -> None:
        begins, ends = self._begins[segment], self._ends[segment]
        at = bisect_left(begins, offset)
        assert at == 0 or ends[begins[at - 1]] <= offset, f"block {block} overlaps the one before"
        assert at == len(begins) or offset + size <= begins[at], (
            f"block {block} overlaps the one after"
        )
        begins.insert(at, offset)
        ends[offset] = offset + size

    def _remove(self, segment: int, offset: int, requested: int) -> None:
        begins = self._begins[segment]
        del begins[bisect_left(begins, offset)]
        del self._ends[segment][offset]
        self.frees += 1
        self.requested -= requested


def _events(trace: Trace) -> Iterator[tuple[int, int, int]]:
    """Op, block and size of each event."""
    for begin in range(0, len(trace), _EVENTS_AT_ONCE):
        part = slice(begin, begin + _EVENTS_AT_ONCE)
        columns = (column[part].tolist() for column in (trace.op, trace.block, trace.size))
        yield from zip(*columns, strict=True)


def judge(trace: Trace, name: str) -> allocators.Stats:
    """The statistics of a strategy after a trace of `random_events`.

    Raises AssertionError or InvariantViolation for a broken rule.
    """
    candidate = allocators.info(name).candidate
    device = random_events.device_for(trace, reuses=candidate)
    allocator = allocators.make(f"check:of={name}", device)
    watching = PlacementJudge(trace)
    stats = allocators.replay(trace, allocator, placements=watching).stats
    watching.finish()
    expected = (watching.served, watching.refused, watching.frees)
    assert (stats.allocations, stats.failures, stats.frees) == expected, "requests are counted"
    assert stats.requested == watching.requested, "requested bytes are those of the live blocks"
    assert stats.peak_requested == watching.peak_requested, "their peak, too"
    assert (stats.failures > 0) == candidate, "some requests fail on the small device"
    allocator.check()
    assert allocator.stats().requested == 0, "the replay frees what is left"
    assert allocators.leaks(allocator) == []
    allocator.trim()
    assert allocator.device.reserved == 0, "everything goes back to the device at the end"
    return stats


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judged", description=__doc__)
    parser.add_argument("--events", type=int, default=10**7, help="for each strategy")
    parser.add_argument("--seed", type=int, default=8, help="of the random events")
    parser.add_argument("--only", action="append", help="a strategy; can be given several times")
    given = parser.parse_args()
    names = given.only or allocators.names()
    trace = random_events.events(given.events, given.seed)
    table = Table("strategy", "events", "served", "refused", "seconds", "result")
    broken = 0
    for name in names:
        began = time.monotonic()
        try:
            stats = judge(trace, name)
            counts, result = (f"{stats.allocations:,}", f"{stats.failures:,}"), "no rule broken"
        except (AssertionError, allocators.InvariantViolation) as error:
            counts, result, broken = ("", ""), str(error), broken + 1
        seconds = f"{time.monotonic() - began:.0f}"
        table.add_row(name, f"{len(trace):,}", *counts, seconds, result)
        print(name, len(trace), *counts, seconds, result, flush=True)
    Console().print(table)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
