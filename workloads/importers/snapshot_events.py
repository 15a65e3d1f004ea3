# SPDX-License-Identifier: Apache-2.0
"""The events of one device of a memory snapshot: allocs, frees, device calls and failures."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import AddressedEvents, marks_before
from allocbench.workloads.importers.snapshot_columns import Columns
from allocbench.workloads.importers.snapshot_pools import Pools
from allocbench.workloads.importers.snapshot_segments import ACTIONS, GROWTH, SHRINKING, SegmentCall
from allocbench.workloads.recordings import Refused
from allocbench.workloads.trace import TraceError

_ALLOC = "alloc"
_FREES, _FREE_REQUESTED = ("free_completed", "free"), "free_requested"
_OUT_OF_MEMORY = "oom"
_NOTHING = np.empty(0, np.uint64)


class DeviceEvents:
    """n events, of which the m allocs and frees are kept.

    size: int64 (m,), requested bytes of the allocs. time_ns: int64 (m,), 0 in snapshots without
    times. Raises TraceError for events that are not valid.
    """

    def __init__(
        self, columns: Columns, events: Sequence[Any], live: NDArray[np.uint64] = _NOTHING
    ) -> None:
        """live: addresses of the blocks that lived at the end."""
        self._columns = columns
        self._rows = columns.rows(events)
        self._action = np.asarray(columns.action)[self._rows]
        self._is_kept, requested = self._are(_ALLOC, *_FREES), self._are(_FREE_REQUESTED)
        self.frees_left_out = 0
        """Frees of which the events have only the request, as with skip_actions."""
        if not self._are(*_FREES).any():
            address = np.asarray(columns.address)[self._rows[requested]].astype(np.uint64)
            if not np.isin(address, live).all():
                self._is_kept |= requested
                self.frees_left_out = len(address)
        self.size = self._kept(columns.size)
        self.time_ns = self._kept(columns.time) * 1000
        if len(self.size) and self.size.min() < 0:
            raise TraceError(f"event {int(self.size.argmin())}: size {self.size.min()} is below 0")

    def __len__(self) -> int:
        return len(self.size)

    def _are(self, *actions: str) -> NDArray[np.bool_]:
        return np.isin(self._action, [self._code(name) for name in actions])

    def _code(self, action: str) -> int:
        return self._columns.codes.get(action, -1)

    def _kept(self, column: array[int]) -> NDArray[Any]:
        return np.asarray(column)[self._rows[self._is_kept]]

    def addressed(self, pools: Pools, marks: Sequence[tuple[int, str]]) -> AddressedEvents:
        """The allocs and frees.

        pools: their streams and private pools. marks: when each one begins, in ns, and its name.
        """
        columns = self._columns
        address = self._kept(columns.address).astype(np.uint64)
        pool = self._kept(columns.pool)
        return AddressedEvents(
            is_alloc=self._kept(columns.action) == self._code(_ALLOC),
            address=address,
            size=self.size.astype(np.uint64),
            stream=pools.numbers(self._kept(columns.stream), address, pool, columns.pools),
            label=self._kept(columns.label),
            time_ns=self.time_ns if self.time_ns.any() else None,
            labels=tuple(columns.labels),
            marks=marks_before(self.time_ns, marks),
            pools=pools.private,
        )

    def calls(self) -> list[SegmentCall]:
        """The calls to the device, in order."""
        columns = self._columns
        names = {columns.codes[name]: name for name in ACTIONS if name in columns.codes}
        pools = {number: pool for pool, number in columns.pools.items()}
        position = np.cumsum(self._is_kept)
        calls = []
        for n in np.flatnonzero(np.isin(self._action, list(names))).tolist():
            row, name = int(self._rows[n]), names[int(self._action[n])]
            address, size = columns.address[row], columns.size[row]
            if address < 0 or size < 0:
                raise TraceError(
                    f"event {n}: {name} of {size} bytes at {address}: neither can be below 0"
                )
            pool = pools.get(columns.pool[row])
            call = SegmentCall(name, address, size, columns.stream[row], pool, int(position[n]))
            calls.append(call)
        return calls

    def others(self) -> dict[str, int]:
        """How many events of each other action there are, in order of their names."""
        names = list(self._columns.codes)
        counts = np.bincount(self._action[~self._is_kept], minlength=len(names)).tolist()
        return {name: count for name, count in sorted(zip(names, counts, strict=True)) if count}

    @cached_property
    def _last_failure(self) -> int | None:
        failed = np.flatnonzero(self._action == self._code(_OUT_OF_MEMORY))
        return int(failed[-1]) if len(failed) else None

    def after_failure(self, marks: Sequence[tuple[int, str]]) -> dict[str, int] | None:
        """How many allocs and steps came after the last request that failed; None if none did."""
        last = self._last_failure
        if last is None:
            return None
        when = int(np.asarray(self._columns.time)[self._rows[last]]) * 1000
        return {
            "allocs": int(np.count_nonzero(self._action[last:] == self._code(_ALLOC))),
            "steps": sum(name == "step" and time_ns > when for time_ns, name in marks),
        }

    def refused(self) -> Refused | None:
        """The last request, if it failed."""
        last = self._last_failure
        if last is None or np.any(self._action[last:] == self._code(_ALLOC)):
            return None
        columns, row = self._columns, int(self._rows[last])
        return Refused(
            size=max(0, columns.size[row]),
            later=int(np.count_nonzero(self._is_kept[last:])),
            label=list(columns.labels)[columns.label[row]],
            device_free=max(0, columns.address[row]),
            reserved_later=self.reserved(last),
        )

    def reserved(self, first: int = 0) -> int:
        """Bytes that the events from one on add to those reserved."""
        size = np.asarray(self._columns.size)[self._rows[first:]]
        grown, shrunk = self._are(*GROWTH)[first:], self._are(*SHRINKING)[first:]
        return int(size[grown].sum()) - int(size[shrunk].sum())

    @property
    def tell_pools(self) -> bool:
        """Whether each event of the file names its pool."""
        pools = self._columns.pool
        return len(pools) > 0 and bool(np.asarray(pools).min() >= 0)

    @property
    def lack_pools(self) -> bool:
        """Whether the file has events, some of which do not name their pool."""
        return len(self._columns.pool) > 0 and not self.tell_pools
