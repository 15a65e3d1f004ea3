# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of traces: kinds of events, provenance, the error. Does not import numpy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocbench.base.errors import UserError
from allocbench.base.trace import ALLOC as ALLOC
from allocbench.base.trace import CAPTURE_BEGIN as CAPTURE_BEGIN
from allocbench.base.trace import CAPTURE_END as CAPTURE_END
from allocbench.base.trace import FREE as FREE
from allocbench.base.trace import MARK as MARK
from allocbench.base.trace import MAX_SIZE as MAX_SIZE
from allocbench.base.trace import MOST_POOLS as MOST_POOLS
from allocbench.base.trace import POOL_CREATE as POOL_CREATE
from allocbench.base.trace import POOL_ENTER as POOL_ENTER
from allocbench.base.trace import POOL_EVENTS as POOL_EVENTS
from allocbench.base.trace import POOL_LEAVE as POOL_LEAVE
from allocbench.base.trace import POOL_RELEASE as POOL_RELEASE
from allocbench.base.trace import POOL_TRAITS as POOL_TRAITS
from allocbench.base.trace import TRIM as TRIM
from allocbench.base.trace import PrivatePool as PrivatePool


class TraceError(UserError):
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

    @classmethod
    def of_file(cls, path: Path, **more: Any) -> "Provenance":
        """That of a trace that another program wrote to a file; more: further fields."""
        return cls(name=path.stem, kind="imported", source=path.name, **more)
