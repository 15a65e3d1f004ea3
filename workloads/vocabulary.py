# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of traces: kinds of events, provenance, the error. Does not import numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocbench.base.op_codes import ALLOC as ALLOC
from allocbench.base.op_codes import CAPTURE_BEGIN as CAPTURE_BEGIN
from allocbench.base.op_codes import CAPTURE_END as CAPTURE_END
from allocbench.base.op_codes import FREE as FREE
from allocbench.base.op_codes import MARK as MARK
from allocbench.base.op_codes import POOL_CREATE as POOL_CREATE
from allocbench.base.op_codes import POOL_ENTER as POOL_ENTER
from allocbench.base.op_codes import POOL_LEAVE as POOL_LEAVE
from allocbench.base.op_codes import POOL_RELEASE as POOL_RELEASE
from allocbench.base.op_codes import TRIM as TRIM

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


class TraceError(ValueError):
    """A trace, or a file that should contain one, breaks a rule; the message is one line."""


class SeveralDevicesError(TraceError):
    """A snapshot has the events of several devices, and none was chosen."""

    def __init__(self, text: str, devices: Sequence[int]) -> None:
        super().__init__(text)
        self.devices = devices


@dataclass(frozen=True)
class Provenance:
    """The origin of a trace.

    `live_at_start` is the number of blocks that were already live when recording began; the same
    number of allocs at the start of the trace represents them. `extra` holds any further
    information as plain JSON values.
    """

    name: str = ""
    kind: str = ""  # captured, recorded, imported, serving or synthetic
    source: str = ""
    model: str = ""
    torch: str = ""
    device: str = ""
    date: str = ""
    seed: int | None = None
    live_at_start: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
