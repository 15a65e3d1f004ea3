# SPDX-License-Identifier: Apache-2.0
"""The kinds of events of a trace, and private pools. The native core has the same kinds."""

from __future__ import annotations

from dataclasses import dataclass

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
