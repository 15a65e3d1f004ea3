# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of traces: kinds of events, provenance, the error. Does not import numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allocbench.base.op_codes import ALLOC as ALLOC
from allocbench.base.op_codes import FREE as FREE
from allocbench.base.op_codes import MARK as MARK
from allocbench.base.op_codes import TRIM as TRIM

MAX_SIZE = 2**63 - 1
"""The largest size of an event, bytes."""


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
