# SPDX-License-Identifier: Apache-2.0
"""The events of a trace and what a replay needs beside them; the native core has the same kinds.

`allocbench.workloads.Trace` adds names and origin.

Does not import numpy: a program on another allocator may lack it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EventArrays:
    """Consecutive events of a trace, one per element of each array.

    op: uint8 (n,), one of ALLOC, FREE, MARK, TRIM and the events of private pools (POOL_EVENTS).
    block: uint32 (n,), the number of the block of an alloc or a free. For a mark, an index into the
        labels of the trace.
    size: uint64 (n,), requested bytes, at least 1 for an alloc and 0 for every other op.
    stream: uint16 (n,), the stream of the event.
    pool: uint16 (n,) or None, the private pool of each event, 0 for memory outside of them; None if
        no event has one. A free may have any, because its block knows its pool. A trim with pool 0
        returns free segments outside of private pools and in released ones; any other trim returns
        those of its pool, if the pool is released.
    label: uint32 (n,) or None, index into the labels: the operator or phase of each event.
    """

    op: NDArray[np.uint8]
    block: NDArray[np.uint32]
    size: NDArray[np.uint64]
    stream: NDArray[np.uint16]
    pool: NDArray[np.uint16] | None = field(default=None, kw_only=True)
    label: NDArray[np.uint32] | None = field(default=None, kw_only=True)

    @property
    def id(self) -> NDArray[np.uint32]:
        """uint32 (n,), what placements and errors call the block of each alloc and free."""
        return self.block


@dataclass(frozen=True, eq=False)
class Layout:
    """Segments and the blocks allocated in them, each in order of address; the rest is free.

    s segments: address, size: uint64 (s,), bytes. stream: uint16 (s,). small: bool (s,), whether
    the segment belongs to the pool of small blocks. reservation: uint64 (s,), the address of the
    reservation that the segment is a mapped range of, or 0 if there is no reservation. rank: uint32
    (s,), the order in which the segments were obtained, as far as it is known. pool: uint16 (s,),
    the private pool, or 0. of_bfc: whether they are regions of TensorFlow's allocator, not segments
    of PyTorch's.
    b blocks: block_address, block_size: uint64 (b,), bytes. The first b events of the trace
    allocate them.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    stream: NDArray[np.uint16]
    small: NDArray[np.bool_]
    reservation: NDArray[np.uint64]
    rank: NDArray[np.uint32]
    block_address: NDArray[np.uint64]
    block_size: NDArray[np.uint64]
    pool: NDArray[np.uint16] = ()  # type: ignore[assignment]
    of_bfc: bool = False

    def __post_init__(self) -> None:
        import numpy as np

        if not len(self.pool):
            object.__setattr__(self, "pool", np.zeros(len(self.address), np.uint16))

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return int(self.size.sum())

    @property
    def segment_of_block(self) -> NDArray[np.int64]:
        """int64 (b,), the segment that each block begins in, or -1."""
        import numpy as np

        return np.searchsorted(self.address, self.block_address, side="right").astype(np.int64) - 1

    def first_broken(self) -> str | None:
        """The rule that the layout breaks, or None."""
        import numpy as np

        end = self.address + self.size
        if np.any(self.size == 0) or np.any(end[:-1] > self.address[1:]):
            return "the segments of the layout are empty, overlap or are not in order"
        if np.any(self.reservation > self.address):
            return "a segment of the layout begins before its reservation"
        segment = self.segment_of_block
        ends = self.block_address + self.block_size
        if np.any(segment < 0) or np.any(ends > end[segment]):
            return "a block of the layout lies in none of its segments"
        if np.any(self.block_size == 0) or np.any(ends[:-1] > self.block_address[1:]):
            return "the blocks of the layout are empty, overlap or are not in order"
        return None


class AnyTrace(Protocol):
    """A valid trace, in memory or in a file. A mark whose block is `step_label` begins a step."""

    @property
    def step_label(self) -> int:
        """Label of the marks that begin a step, or -1."""
        ...

    @property
    def pools(self) -> Sequence[PrivatePool]:
        """The private pools 1, 2, and so on."""
        ...

    @property
    def layout(self) -> Layout | None:
        """What the recorded allocator held at the start, where that is known."""
        ...

    def __len__(self) -> int:
        """Number of events."""
        ...

    def parts(self) -> Iterator[EventArrays]:
        """The events in order, in parts that are not empty; each call begins with the first.

        The first part has all allocs of the blocks of the layout.
        """
        ...


ALLOC, FREE, MARK, TRIM = range(4)
POOL_CREATE, POOL_ENTER, POOL_LEAVE, CAPTURE_BEGIN, CAPTURE_END, POOL_RELEASE = range(4, 10)

MAX_SIZE = 2**63 - 1
"""The largest size of an event, bytes."""


POOL_EVENTS = {
    "pool_create": POOL_CREATE,
    "pool_enter": POOL_ENTER,
    "pool_leave": POOL_LEAVE,
    "capture_begin": CAPTURE_BEGIN,
    "capture_end": CAPTURE_END,
    "pool_release": POOL_RELEASE,
}
"""The events of private pools by name: a pool is made, entered and left by a program, captured into
by a graph, and released when its maker or a graph is gone."""

POOL_TRAITS = ("use_on_oom", "no_split")
"""What a program can choose for a private pool."""

MOST_POOLS = 2**16 - 1
"""Private pools that a trace can have."""


@dataclass(frozen=True)
class PrivatePool:
    """Memory that serves only captured graphs or a torch.cuda.MemPool.

    name: what the program calls it, such as PyTorch's id "0.1". use_on_oom: whether its free blocks
    may serve requests outside of it that would fail. no_split: whether each of its requests gets a
    whole segment.
    """

    name: str = ""
    use_on_oom: bool = False
    no_split: bool = False

    @property
    def rank(self) -> int:
        """Where PyTorch's hash table of pools with use_on_oom has this one, below 2**64.

        Fibonacci hashing of the part of the id that is not 0 (c10/util/flat_hash_map.h).
        """
        parts = [int(part) for part in self.name.split(".") if part.isdecimal()]
        number = next(filter(None, parts), 0)
        return number * 11400714819323198485 % 2**64

    @property
    def traits(self) -> tuple[str, ...]:
        """The names of what was chosen."""
        return tuple(name for name in POOL_TRAITS if getattr(self, name))
