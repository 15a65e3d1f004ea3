# SPDX-License-Identifier: Apache-2.0
"""Private pools of a memory snapshot: each is a stream of its own in the trace.

Memory of a private pool (of a captured graph or a MemPool) serves only requests of that pool, just
as memory of a stream serves only that stream. From PyTorch 2.13 on, each event names its pool. For
older versions, the pool is that of the segment around the address, if it is still held at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.importers.addresses import Blocks
from allocbench.workloads.importers.pool_ids import DEFAULT_POOL, PoolId
from allocbench.workloads.importers.snapshot_segments import (
    SEGMENT_ALLOC,
    Segment,
    SegmentCall,
)

_AT_END = 1 << 62  # after every event
_PRIVATE = 1 << 62  # numbers from here on represent private pools


class Pools:
    """Numbers that represent a stream and a pool: the stream's own number for the default pool.

    number: of every stream and pool of the segments. private: what numbers of private pools mean.
    """

    def __init__(self, final: Sequence[Segment], calls: Sequence[SegmentCall]) -> None:
        self.number: dict[tuple[int, PoolId], int] = {}
        self.private: dict[int, tuple[int, PoolId]] = {}
        for segment in final:
            self.of(segment.stream, segment.pool)
        for call in calls:
            self.of(call.stream, call.pool or DEFAULT_POOL)
        private = sorted(
            (segment for segment in final if segment.pool != DEFAULT_POOL),
            key=lambda segment: segment.address,
        )
        obtained = {
            str(call.address): call.position for call in calls if call.action == SEGMENT_ALLOC
        }
        self._begin = np.array([segment.address for segment in private], np.uint64)
        self._end = np.array([segment.end for segment in private], np.uint64)
        self._stream = np.array([segment.stream for segment in private], np.int64)
        self._since = np.array(
            [obtained.get(str(segment.address), 0) for segment in private], np.int64
        )
        self._pool = [segment.pool for segment in private]

    def of(self, stream: int, pool: PoolId) -> int:
        """The number of a stream and a pool."""
        if (stream, pool) not in self.number:
            number = stream if pool == DEFAULT_POOL else _PRIVATE + len(self.private)
            self.number[stream, pool] = number
            if number != stream:
                self.private[number] = stream, pool
        return self.number[stream, pool]

    def numbers(
        self,
        stream: NDArray[np.int64],
        address: NDArray[np.uint64],
        named: NDArray[np.int32],
        pools: Mapping[PoolId, int],
    ) -> NDArray[np.int64]:
        """The number of each event, by the pool that it names (-1: none) or by its address.

        The device may have given the addresses to another pool before: an event belongs to the
        segment at its address if it has the same stream and comes after the segment was obtained.
        """
        if not self.private and len(pools) == 1:
            return stream
        return self._numbers(stream, address, named, pools, np.arange(len(stream)))

    def _numbers(
        self,
        stream: NDArray[np.int64],
        address: NDArray[np.uint64],
        named: NDArray[np.int32],
        pools: Mapping[PoolId, int],
        when: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        numbers = stream.copy()
        inside = np.searchsorted(self._begin, address, side="right").astype(np.int64) - 1
        around = inside >= 0
        segment = inside[around]
        around[around] = (
            (address[around] < self._end[segment])
            & (stream[around] == self._stream[segment])
            & (when[around] >= self._since[segment])
        )
        by_number = {number: pool for pool, number in pools.items()}
        chosen = np.flatnonzero((named > 0) | ((named < 0) & around))
        # Negative: the pool of a segment. Few events differ in stream and pool.
        key = np.where(named[chosen] > 0, named[chosen], -1 - inside[chosen])
        pairs = np.stack([stream[chosen], key.astype(np.int64)], axis=1)
        distinct, first, index = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        of = np.empty(len(distinct), np.int64)
        for n in np.argsort(first).tolist():  # numbers are given in order of appearance
            where, what = distinct[n].tolist()
            of[n] = self.of(where, by_number[what] if what > 0 else self._pool[-1 - what])
        numbers[chosen] = of[index.reshape(-1)]
        return numbers

    def blocks(self, blocks: Blocks) -> Blocks:
        """The blocks alive at the end, with the numbers of their streams and pools."""
        count = len(blocks.address)
        named, at_end = np.full(count, -1, np.int32), np.full(count, _AT_END, np.int64)
        numbers = self._numbers(blocks.stream, blocks.address, named, {}, at_end)
        return replace(blocks, stream=numbers)
