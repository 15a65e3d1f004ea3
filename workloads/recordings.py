# SPDX-License-Identifier: Apache-2.0
"""A recording: a trace, and what the recorded allocator did with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.coverage import Coverage as Coverage
from allocbench.workloads.trace import ALLOC, FREE, NAMED, Trace

CALLS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
"""What `kind` of a call stands for, by PyTorch's names."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls to the device that it served, in order; arrays of equal length.

    kind: uint8, index into CALLS. address, size: uint64, bytes. before: int64, how many allocs of
    the trace happened before the call.
    """

    kind: NDArray[np.uint8]
    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    before: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kind)

    def _change(self) -> NDArray[np.int64]:
        signs = np.where(np.isin(self.kind, (0, 2)), 1, -1)
        return signs * self.size.astype(np.int64)

    def reserved(self, allocs: int, at_start: int) -> NDArray[np.int64]:
        """int64 (allocs,), bytes reserved after each alloc of the trace."""
        change = np.zeros(allocs + 1, np.int64)
        np.add.at(change, self.before, self._change())
        return at_start + np.cumsum(change[:-1])

    def peak(self, at_start: int) -> int:
        """Most bytes reserved at any time."""
        return at_start + int(np.cumsum(self._change()).max(initial=0))


@dataclass(frozen=True, eq=False)
class Gaps:
    """Contradictions that show that an alloc or a free is missing; arrays of equal length.

    begun: int64, the alloc of the trace whose free is missing: its address is allocated again, or
    free at the end. It is -1 where an alloc is missing: an address is freed twice, or its last
    event is a free although a block lives there at the end. shown: int64, how many allocs of the
    trace precede the event that contradicts; in ascending order. address: uint64.
    """

    begun: NDArray[np.int64]
    shown: NDArray[np.int64]
    address: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.begun)

    @property
    def frees(self) -> int:
        """How many frees are missing."""
        return int(np.count_nonzero(self.begun >= 0))

    @property
    def allocs(self) -> int:
        """How many allocs are missing."""
        return len(self) - self.frees

    def before(self, alloc: int) -> Gaps:
        """The gaps that show before an alloc of the trace."""
        count = int(np.searchsorted(self.shown, alloc))
        return Gaps(self.begun[:count], self.shown[:count], self.address[:count])

    def around(self, alloc: int) -> Gaps:
        """The gaps of blocks that were allocated before an alloc and still live in the trace."""
        alive = (self.begun >= 0) & (self.begun < alloc) & (self.shown >= alloc)
        return Gaps(self.begun[alive], self.shown[alive], self.address[alive])

    @staticmethod
    def none() -> Gaps:
        """No gaps."""
        return Gaps(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64))


def with_gaps(coverage: Coverage, gaps: Gaps) -> Coverage:
    """The coverage of a trace with these gaps."""
    return replace(coverage, allocs_missing=gaps.allocs, frees_missing=gaps.frees)


@dataclass(frozen=True)
class FailedRequest:
    """A request that failed. Bytes.

    later: how many frees came afterwards. names: of its call stack, by column of a trace.
    device_free: free on the device, None if unknown. reserved_later: what the allocator reserved
    afterwards, below 0 if it returned more.
    """

    size: int
    later: int
    names: Mapping[str, str] = field(default_factory=dict)
    device_free: int | None = None
    reserved_later: int = 0


@dataclass(frozen=True, eq=False)
class Recording:
    """What a program requested from its allocator, and what it got.

    trace: m allocs, the first of them those that lived at the start. address: uint64 (m,), where
    each was placed. calls: those to the device, None where they were not recorded. reserved: int64
    (m,), bytes reserved after each alloc according to the recording itself; None if they follow
    from the calls. options: those of `caching` that correspond to the recorded settings. capacity:
    bytes of the device, if known. tells_pools: whether each event names its pool. tells_settings:
    False for a snapshot without the settings that are needed to reconstruct its start. unknown: why
    the recording cannot be replayed from its start, or "". gaps: where it contradicts itself.
    failure: the request that failed last, if no alloc came after it.
    """

    trace: Trace
    address: NDArray[np.uint64]
    calls: Calls | None = None
    reserved: NDArray[np.int64] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    capacity: int | None = None
    tells_pools: bool = False
    tells_settings: bool = True
    unknown: str = ""
    gaps: Gaps = field(default_factory=Gaps.none)
    failure: FailedRequest | None = None

    def with_failure(self) -> Trace:
        """The trace with an alloc where a request failed, on the stream of the event before it."""
        trace, failure = self.trace, self.failure
        if failure is None or not failure.size:
            return trace
        calls = np.flatnonzero(trace.op <= FREE)
        later = failure.later
        begin = int(calls[-later]) if 0 < later <= len(calls) else len(trace)
        labels = [*trace.labels]
        values = dict.fromkeys(trace.columns(), 0)
        values |= {"op": ALLOC, "block": trace.blocks, "size": failure.size}
        for name in ("stream", "time_ns"):
            values[name] = getattr(trace, name)[begin - 1] if name in values and begin else 0
        for name in values.keys() & {*NAMED}:
            if failure.names.get(name, "") not in labels:
                labels.append(failure.names[name])
            values[name] = labels.index(failure.names.get(name, ""))
        columns: dict[str, Any] = {
            name: np.insert(column, begin, values[name]) for name, column in trace.columns().items()
        }
        extra = {**trace.provenance.extra, "failed_request": failure.size}
        return replace(
            trace,
            **columns,
            labels=tuple(labels),
            provenance=replace(trace.provenance, extra=extra),
        )
