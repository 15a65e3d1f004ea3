# SPDX-License-Identifier: Apache-2.0
"""The memory held at the beginning of a profiler trace, if it follows from the events.

Each event contains Total Allocated and Total Reserved. If they were not 0 before the first event,
the process began before the trace. The layout then follows only in the simplest case: segments of
2 MiB at multiples of 2 MiB, which are filled from the front without gaps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import AddressedEvents, Blocks, Start, none
from allocbench.workloads.layout import Layout
from allocbench.workloads.pytorch_settings import SMALL_SEGMENT

_Bytes = NDArray[np.int64]


class KinetoStart:
    """The start of a trace whose n events contain allocated and reserved bytes.

    live: blocks that lived from the start to the end. unknown: why the start is unknown, or "".
    """

    def __init__(self, events: AddressedEvents, allocated: _Bytes, reserved: _Bytes) -> None:
        self.live = none()
        self._segments = np.empty(0, np.uint64)
        self.unknown = self._of_events(events, allocated, reserved)

    def _of_events(self, events: AddressedEvents, allocated: _Bytes, reserved: _Bytes) -> str:
        if not len(reserved) or reserved.min() < 0 or allocated.min() < 0:
            return "its events do not contain Total Allocated and Total Reserved"
        change = np.where(events.is_alloc, 1, -1) * events.size.astype(np.int64)
        jumps = np.flatnonzero(np.diff(allocated) != change[1:])
        if len(jumps):
            return f"Total Allocated does not follow from Bytes at memory event {jumps[0] + 1}"
        before = int(allocated[0] - change[0])
        if before == 0 and events.is_alloc[0]:
            return ""
        level = int(np.argmax(reserved != reserved[0])) or len(reserved)
        segment = events.address // SMALL_SEGMENT * SMALL_SEGMENT
        begins = np.unique(segment[:level])
        if len(begins) * SMALL_SEGMENT == reserved[0]:
            order = np.argsort(events.address)
            lowest = events.address[order][np.searchsorted(segment[order], begins)]
            if events.is_alloc[:level].all() and int((lowest - begins).sum()) == before:
                self._segments = begins
                self._fill(begins, lowest - begins)
                return ""
        return (
            f"{before} bytes were allocated before its first event, and it does not show their"
            " addresses; a memory snapshot does"
        )

    def _fill(self, begins: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        """One block in place of the unknown blocks at the front of each segment."""
        filled = sizes > 0
        zeros = np.zeros(np.count_nonzero(filled), np.int64)
        address, size = begins[filled], sizes[filled].astype(np.uint64)
        self.live = Blocks(address, size, zeros, zeros.astype(np.uint32), size)

    def laid_out(self) -> Callable[[AddressedEvents, Blocks], Start] | None:
        """The function that gives `traced` the layout, or None."""
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
