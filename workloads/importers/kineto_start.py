# SPDX-License-Identifier: Apache-2.0
"""The memory held at the beginning of a profiler trace, if it follows from the events.

Each event contains Total Allocated and Total Reserved. If they were not 0 before the first event,
the process began before the trace. The layout then follows only in the simplest case: segments of
2 MiB at multiples of 2 MiB, which are filled from the front without gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads._native import SMALL_REQUEST, SMALL_SEGMENT, PytorchSettings
from allocbench.workloads.coverage import Coverage
from allocbench.workloads.importers.addresses import AddressedEvents, Blocks, Start, none
from allocbench.workloads.layout import Layout
from allocbench.workloads.sorting import stable_order

_Bytes = NDArray[np.int64]
_JUMP = "Total Allocated does not follow from Bytes at memory event {}"


class KinetoStart:
    """The start of a trace whose n events contain allocated and reserved bytes.

    live: blocks that lived from the start to the end. unknown: why the start is unknown, or "".
    coverage: of the trace.
    """

    def __init__(
        self, events: AddressedEvents, allocated: _Bytes, reserved: _Bytes, label: int
    ) -> None:
        """label: that of memory whose blocks have no events."""
        self.live = none()
        self._segments = np.empty(0, np.uint64)
        self._label = label
        self.coverage = Coverage(begins="later", ends="open")
        self.unknown = self._of_events(events, allocated, reserved)

    def _of_events(self, events: AddressedEvents, allocated: _Bytes, reserved: _Bytes) -> str:
        freed = _freed_at_first(events)
        if not len(reserved) or reserved.min() < 0 or allocated.min() < 0:
            self.coverage = replace(self.coverage, held=freed, live=freed)
            return "its events do not contain Total Allocated and Total Reserved"
        change = np.where(events.is_alloc, 1, -1) * events.size.astype(np.int64)
        jumps = np.flatnonzero(np.diff(allocated) != change[1:])
        before, at_start = int(allocated[0] - change[0]), int(reserved[0])
        level = np.cumsum(change) + freed
        unseen = int((allocated - level).max() if len(jumps) else allocated[0] - level[0])
        new = before == 0 and events.is_alloc[0] and at_start <= _first_segment(change[0])
        self.coverage = Coverage(
            begins="start" if new else "later",
            ends="open",
            held=0 if new else at_start,
            live=max(0, before),
            unseen=max(0, unseen),
            reserved=int(reserved[-1]),
            contradiction=_JUMP.format(jumps[0] + 1) if len(jumps) else "",
        )
        if len(jumps):
            self._stand_in(events)
            return self.coverage.contradiction
        if before == 0 and events.is_alloc[0]:
            return ""
        level_ends = int(np.argmax(reserved != reserved[0])) or len(reserved)
        segment = events.address // SMALL_SEGMENT * SMALL_SEGMENT
        begins = np.unique(segment[:level_ends])
        if len(begins) * SMALL_SEGMENT == reserved[0]:
            order = np.argsort(events.address)
            lowest = events.address[order][np.searchsorted(segment[order], begins)]
            if events.is_alloc[:level_ends].all() and int((lowest - begins).sum()) == before:
                self._segments = begins
                self._fill(begins, lowest - begins)
                return ""
        self._stand_in(events)
        return (
            f"{before} bytes were allocated before its first event, and it does not show their"
            " addresses; a memory snapshot does"
        )

    def _stand_in(self, events: AddressedEvents) -> None:
        """One block for all memory whose blocks have no events, at an address that none has."""
        if not self.coverage.unseen:
            return
        free = np.setdiff1d(np.arange(len(events) + 1, dtype=np.uint64), events.address)[:1]
        size = np.array([self.coverage.unseen], np.uint64)
        label = np.array([self._label], np.uint32)
        self.live = Blocks(free, size, np.zeros(1, np.int64), label, size)

    def _fill(self, begins: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        """One block in place of the unknown blocks at the front of each segment."""
        filled = sizes > 0
        zeros = np.zeros(np.count_nonzero(filled), np.int64)
        address, size = begins[filled], sizes[filled].astype(np.uint64)
        label = np.full(len(zeros), self._label, np.uint32)
        self.live = Blocks(address, size, zeros, label, size)

    def laid_out(self) -> Callable[[AddressedEvents, Blocks], Start] | None:
        """The function that gives `assemble` the layout, or None."""
        if not len(self._segments):
            return None
        return self._layout

    def _layout(self, events: AddressedEvents, initial: Blocks) -> Start:
        count = len(self._segments)
        if len(initial.address) != len(self.live.address):
            return Start()  # some were freed, and their addresses are known
        return Start(
            Layout(
                address=self._segments,
                size=np.full(count, SMALL_SEGMENT, np.uint64),
                stream=np.zeros(count, np.uint16),
                small=np.ones(count, np.bool_),
                reservation=np.zeros(count, np.uint64),
                rank=np.arange(count, dtype=np.uint32),
                block_address=initial.address,
                block_size=initial.granted,
            )
        )


def _freed_at_first(events: AddressedEvents) -> int:
    """Bytes of the blocks of which the events have only the free."""
    order = stable_order(events.address)
    address = events.address[order]
    first = order[np.append(True, address[1:] != address[:-1])[: len(order)]]
    return int(events.size[first[~events.is_alloc[first]]].sum())


def _first_segment(size: int) -> int:
    """The most bytes that a new allocator reserves for its first request."""
    page = SMALL_SEGMENT if size <= SMALL_REQUEST else PytorchSettings({}).large_segment
    return -(-int(size) // page) * page
