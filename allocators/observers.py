# SPDX-License-Identifier: Apache-2.0
"""The observations of the wrappers `record` and `check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from allocbench.allocators import _core
from allocbench.allocators._core import Allocator
from allocbench.base.trace import ALLOC, MARK, EventArrays, PrivatePool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LAST_STREAM = 2**16 - 1  # of a trace


@dataclass(frozen=True, eq=False)
class RecordedEvents(EventArrays):
    """The events of an allocator. Ids of blocks are in the order of the allocs; marks are steps."""

    labels: tuple[str, ...] = ("step",)
    step_label: int = 0
    layout: None = None
    pools: tuple[PrivatePool, ...] = ()

    def __len__(self) -> int:
        return len(self.op)

    def parts(self) -> Iterator[EventArrays]:
        """All events as one part, or no part without events."""
        if len(self):
            yield self


def recording(allocator: Allocator) -> RecordedEvents:
    """The served requests, frees, steps and trims of an allocator with a `record` wrapper so far.

    The recording can be replayed, or turned into a `workloads.Trace`: `Trace(r.op, r.block, r.size,
    r.stream, r.labels)`. Raises SpecError for an allocator without that wrapper, and ValueError for
    a stream number that a trace cannot represent.
    """
    columns = _core.recording(allocator)
    stream = columns["stream"]
    if len(stream) and (largest := int(stream.max())) > _LAST_STREAM:
        raise ValueError(f"a trace holds streams up to {_LAST_STREAM}, not {largest}")
    pool, pools = columns["pool"], int(columns["pool"].max(initial=0))
    return RecordedEvents(
        columns["op"],
        columns["block"],
        columns["size"],
        stream.astype("uint16"),
        pool=pool if pools else None,
        pools=(PrivatePool(),) * pools,
    )


class LabeledTrace(Protocol):
    """The part of a trace that shows where its requests come from: see `EventArrays`."""

    @property
    def op(self) -> NDArray[np.uint8]: ...  # noqa: D102
    @property
    def block(self) -> NDArray[np.uint32]: ...  # noqa: D102
    @property
    def label(self) -> NDArray[np.uint32] | None: ...  # noqa: D102
    @property
    def labels(self) -> tuple[str, ...]:
        """The names of operators and phases."""
        ...


@dataclass(frozen=True)
class Leak:
    """A live block: its address, its requested and allocated bytes, and its origin.

    `request` is the number of requests before its own, including failed ones; `step` is the number
    of steps begun by then; `label` is the operator or phase, or empty if unknown.
    """

    address: int
    requested: int
    size: int
    stream: int
    request: int
    step: int
    label: str = ""

    def __str__(self) -> str:
        label = f", {self.label}" if self.label else ""
        return (
            f"{_core.human_bytes(self.requested)} at {self.address:#x}: request {self.request}, "
            f"step {self.step}, stream {self.stream}{label}"
        )


def leaks(allocator: Allocator, trace: LabeledTrace | None = None) -> list[Leak]:
    """The live blocks of an allocator with a `check` wrapper, in request order.

    `trace` must be the only trace that the allocator has served. Each leak then has the label of
    its alloc: the event's own label, or that of the last mark. Raises SpecError for an allocator
    without that wrapper, and ValueError if the trace has fewer allocs than the allocator has
    served.
    """
    live = _core.live(allocator)
    labels = _labels(trace, [entry.request for entry in live]) if trace else [""] * len(live)
    return [
        Leak(
            address=entry.block.address,
            requested=entry.block.requested,
            size=entry.block.size,
            stream=entry.stream,
            request=entry.request,
            step=entry.step,
            label=label,
        )
        for entry, label in zip(live, labels, strict=True)
    ]


def _labels(trace: LabeledTrace, requests: list[int]) -> list[str]:
    import numpy as np

    events = np.flatnonzero(trace.op == ALLOC)
    if requests and requests[-1] >= len(events):
        raise ValueError(
            f"the trace has {len(events)} allocs, but the allocator served more: "
            f"request {requests[-1]} (from 0)"
        )
    request_events = events[requests]
    if trace.label is not None:
        return [trace.labels[index] for index in trace.label[request_events].tolist()]
    marks = np.flatnonzero(trace.op == MARK)
    last = np.searchsorted(marks, request_events) - 1
    return [trace.labels[trace.block[marks[mark]]] if mark >= 0 else "" for mark in last.tolist()]
