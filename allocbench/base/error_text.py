# SPDX-License-Identifier: Apache-2.0
"""What files other than traces say of memory: texts of out-of-memory errors, dumps and profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Amount:
    """A number of bytes from `low` to `high`, as exact as it was printed."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        """The number as it was printed."""
        return (self.low + self.high) // 2

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.low - other.high, self.high - other.low)

    @property
    def at_least_0(self) -> Amount:
        """The same range without what is below 0."""
        return Amount(max(0, self.low), max(0, self.high))


def exact(size: int) -> Amount:
    """A number of bytes that was printed in full."""
    return Amount(size, size)


HOST = "host memory"
"""The device of a text that is not about a GPU."""
SHARED = "shared memory"
"""The device of a text about the memory inside a GPU that each block of a kernel uses."""


@dataclass(frozen=True)
class HeldBuffer:
    """What a text lists as holding memory. name: of the operator or value. line: of the program."""

    size: Amount
    name: str
    line: str = ""


@dataclass(frozen=True)
class DumpedBlock:
    """A block in the dump of an allocator. operator: that requested it, or ""."""

    address: int
    size: int
    allocated: bool
    operator: str = ""


@dataclass(frozen=True)
class DumpedSegment:
    """A segment in the dump of an allocator, with its blocks in order of address."""

    address: int
    size: int
    blocks: Sequence[DumpedBlock]


@dataclass(frozen=True)
class ErrorText:
    """What a text says. None: it does not say.

    program: that printed it. message: whether the text has an error, not only a report of use.
    requested: by the request that failed; in PyTorch's own message, the segment for it, so that the
    request may be as small as `least`. free: on the card, which the allocator could still get, or
    with `limit_leaves` what a limit of the program leaves it.
    total: of the card. allowed: the most that the allocator may hold. process: in use by this
    process. allocated: to live blocks. unallocated: held by the allocator, but free. private: the
    same in private pools, which PyTorch counts as allocated. largest_free: the largest free block,
    if the text lists the blocks. others: in use by other processes, by number. needed, available:
    what a program needs at once, and what is left for it. gaps: bytes of `needed` that are not
    used, because a plan leaves them between its buffers; None if they may be any number.
    tokens: that a request needs in a cache, and that the cache has. share: of the card, which the
    program takes unless its environment says otherwise; 0 if that is not a rule of the program.
    parts: other lines worth showing. hint: the setting that the message recommends. backend: of
    PyTorch, such as CUDA, HIP, XPU, NPU and MPS, or "". device, operator: as the message names
    them. errors: how many errors the text has. failures: requests that failed before, as a report
    counts them. peak: the most that was allocated and reserved until then, of a report. buffers:
    what holds memory, the largest first. segments: of the allocator, with the
    blocks that the text lists.
    unlisted: bytes of the segments whose blocks are not in the text.
    """

    program: str
    message: bool = True
    requested: Amount | None = None
    least: int = 0
    free: Amount | None = None
    limit_leaves: bool = False
    total: Amount | None = None
    allowed: Amount | None = None
    process: Amount | None = None
    allocated: Amount | None = None
    unallocated: Amount | None = None
    private: Amount | None = None
    largest_free: Amount | None = None
    others: Sequence[tuple[str, Amount]] = ()
    needed: Amount | None = None
    available: Amount | None = None
    gaps: Amount | None = Amount(0, 0)
    tokens: tuple[int, int] | None = None
    share: float = 0
    parts: Sequence[tuple[str, Amount]] = ()
    hint: str = ""
    backend: str = ""
    device: str = ""
    operator: str = ""
    peak: tuple[Amount, Amount] | None = None
    errors: int = 1
    failures: int = 0
    buffers: Sequence[HeldBuffer] = ()
    segments: Sequence[DumpedSegment] = ()
    unlisted: int = 0


@dataclass(frozen=True)
class MemoryDump:
    """What a file shows of memory at one moment.

    name: of the kind of file. when: what the moment is. kinds: bytes of each kind of memory.
    buffers: what holds it, the largest first.
    """

    name: str
    when: str
    kinds: Sequence[HeldBuffer]
    buffers: Sequence[HeldBuffer]

    @property
    def total(self) -> int:
        """Bytes of all kinds."""
        return sum(row.size.low for row in self.kinds)
