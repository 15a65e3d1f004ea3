# SPDX-License-Identifier: Apache-2.0
"""Build a trace by writing its events one after another."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

from allocbench.workloads.vocabulary import (
    ALLOC,
    FREE,
    MARK,
    MAX_SIZE,
    TRIM,
    Provenance,
    TraceError,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allocbench.workloads.trace import Trace

MOST_ALLOCS = 25_000_000
"""Limit of a trace that is built in memory, about 3 GB."""

_STREAM, _NUMBER = 8, 24  # bits before the stream and before the number of a packed event


class Events:
    """The events of a trace under construction. Blocks get new ids in order.

    An event is packed into one number: its op, its stream, and its block or, for a mark, its label.
    """

    def __init__(self) -> None:
        self.limit(MOST_ALLOCS, "reduce its options")
        self._packed = array("Q")
        self._size = array("Q")  # of the allocs
        self._label = array("I")  # of the allocs
        self._requested = 0  # bytes of all allocs
        self._labels: dict[str, int] = {"": 0}
        self._times: dict[int, int] = {}  # by the first event that has it

    def __len__(self) -> int:
        return len(self._packed)

    @property
    def allocs(self) -> int:
        """The number of allocs so far."""
        return len(self._size)

    def expect(self, allocs: int) -> None:
        """Raise TraceError if this many allocs are to come, which is more than the limit."""
        least = self.allocs + allocs
        if least > self._most:
            raise TraceError(
                f"needs at least {least:,} allocs, more than {self._most:,}: {self._remedy}"
            )

    def limit(self, most: int, remedy: str) -> None:
        """Set the most allocs, and what to do about a trace that needs more."""
        self._most, self._remedy = most, remedy

    def at(self, now_ns: int) -> None:
        """Set the time of the next events. Without a call, the trace has no times."""
        self._times[len(self)] = now_ns

    def alloc(self, size: int, label: str = "", stream: int = 0) -> int:
        """Allocate `size` bytes and return the block's id.

        Raises TraceError beyond the limit, and beyond the sum that the counters of a replay hold.
        """
        block = len(self._size)
        if block == self._most:
            raise TraceError(f"needs more than {self._most:,} allocs: {self._remedy}")
        self._requested += size
        if self._requested > MAX_SIZE:
            raise TraceError(f"its allocs add up to more than {MAX_SIZE:,} bytes")
        self._size.append(size)
        self._label.append(self._labels.setdefault(label, len(self._labels)))
        self._packed.append(block << _NUMBER | stream << _STREAM | ALLOC)
        return block

    def alloc_each(self, count: int, size: int, label: str = "") -> list[int]:
        """Allocate so many blocks of `size` bytes."""
        return [self.alloc(size, label) for _ in range(count)]

    def free_each(self, blocks: Iterable[int]) -> None:
        """Free several blocks."""
        for block in blocks:
            self.free(block)

    def free(self, block: int, stream: int = 0) -> None:
        """Free a block, on a stream."""
        self._packed.append(block << _NUMBER | stream << _STREAM | FREE)

    def mark(self, label: str) -> None:
        """Begin a step ("step") or a phase."""
        number = self._labels.setdefault(label, len(self._labels))
        self._packed.append(number << _NUMBER | MARK)

    def trim(self) -> None:
        """Return unused segments to the device."""
        self._packed.append(TRIM)

    def trace(self, provenance: Provenance) -> Trace:
        """The trace of the events written so far."""
        import numpy as np

        from allocbench.workloads.trace import Trace

        packed = np.array(self._packed, np.uint64)
        op = packed.astype(np.uint8)
        allocs = op == ALLOC
        size = np.zeros(len(op), np.uint64)
        size[allocs] = self._size
        label = np.zeros(len(op), np.uint32)
        label[allocs] = self._label
        return Trace(
            op=op,
            block=(packed >> np.uint64(_NUMBER)).astype(np.uint32),
            size=size,
            stream=(packed >> np.uint64(_STREAM)).astype(np.uint16),
            labels=tuple(self._labels),
            label=label if label.any() else None,
            time_ns=self._time_column() if any(self._times.values()) else None,
            provenance=provenance,
        )

    def _time_column(self) -> NDArray[np.uint64]:
        import numpy as np

        times = np.array([0, *self._times.values()], np.uint64)
        return np.repeat(times, np.diff([0, *self._times, len(self)]))
