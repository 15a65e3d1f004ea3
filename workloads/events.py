# SPDX-License-Identifier: Apache-2.0
"""Build a trace by writing its events one after another."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from allocbench.workloads.vocabulary import ALLOC, FREE, MARK, TRIM, Provenance, TraceError

if TYPE_CHECKING:
    from allocbench.workloads.trace import Trace

MOST_ALLOCS = 25_000_000
"""Limit of a trace that is built in memory, about 3 GB."""


class Events:
    """The events of a trace under construction. Blocks get new ids in order.

    `now_ns` is the time of the next events. Times are kept if it was ever set.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._op = array("B")
        self._block = array("I")
        self._size = array("Q")
        self._stream = array("H")
        self._label = array("I")
        self._time = array("Q")
        self._labels: dict[str, int] = {"": 0}
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._op)

    def alloc(self, size: int, label: str = "", stream: int = 0) -> int:
        """Allocate `size` bytes and return the block's id. Raises TraceError beyond MOST_ALLOCS."""
        block = self._blocks
        if block == MOST_ALLOCS:
            raise TraceError(f"needs more than {MOST_ALLOCS:,} allocs: reduce its options")
        self._blocks = block + 1
        self._add(ALLOC, block, size, stream, label)
        return block

    def free(self, block: int, stream: int = 0) -> None:
        """Free a block, on a stream."""
        self._add(FREE, block, 0, stream, "")

    def mark(self, label: str) -> None:
        """Begin a step ("step") or a phase."""
        self._add(MARK, self._labels.setdefault(label, len(self._labels)), 0, 0, "")

    def trim(self) -> None:
        """Return unused segments to the device."""
        self._add(TRIM, 0, 0, 0, "")

    def trace(self, provenance: Provenance) -> Trace:
        """The trace of the events written so far."""
        import numpy as np

        from allocbench.workloads.trace import Trace

        return Trace(
            op=np.array(self._op, np.uint8),
            block=np.array(self._block, np.uint32),
            size=np.array(self._size, np.uint64),
            stream=np.array(self._stream, np.uint16),
            labels=tuple(self._labels),
            label=np.array(self._label, np.uint32) if any(self._label) else None,
            time_ns=np.array(self._time, np.uint64) if self.now_ns else None,
            provenance=provenance,
        )

    def _add(self, op: int, block: int, size: int, stream: int, label: str) -> None:
        self._op.append(op)
        self._block.append(block)
        self._size.append(size)
        self._stream.append(stream)
        self._label.append(self._labels.setdefault(label, len(self._labels)))
        self._time.append(self.now_ns)
