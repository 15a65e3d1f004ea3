# SPDX-License-Identifier: Apache-2.0
"""What the wrappers `record` and `check` have seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from allocbench.allocators import _core
from allocbench.allocators._core import Allocator

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LAST_STREAM = 2**16 - 1  # of a trace
_ALLOC, _MARK = 0, 2


@dataclass(frozen=True, eq=False)
class Recording:
    """The events of an allocator as the arrays of a trace, one element for each event.

    op: uint8, 0 alloc, 1 free, 2 mark, 3 trim. block: uint32, ids in the order of the allocs.
    size: uint64, requested bytes of an alloc. stream: uint16. All marks are steps.
    """

    op: NDArray[np.uint8]
    block: NDArray[np.uint32]
    size: NDArray[np.uint64]
    stream: NDArray[np.uint16]
    labels: tuple[str, ...] = ("step",)
    step_label: int = 0


def recording(allocator: Allocator) -> Recording:
    """The requests served, frees, steps and trims so far of an allocator with a `record` layer.

    It can be replayed, and makes a Trace of workloads: `Trace(r.op, r.block, r.size, r.stream,
    r.labels)`. Raises SpecError for an allocator without that layer, and ValueError for a stream
    that no trace can hold.
    """
    columns = _core.recording(allocator)
    stream = columns["stream"]
    if len(stream) and (largest := int(stream.max())) > _LAST_STREAM:
        raise ValueError(f"a trace holds streams up to {_LAST_STREAM}, not {largest}")
    return Recording(columns["op"], columns["block"], columns["size"], stream.astype("uint16"))


class LabelledTrace(Protocol):
    """The part of a trace that says where its requests come from; arrays of equal length."""

    @property
    def op(self) -> NDArray[np.uint8]:
        """Kind of each event."""
        ...

    @property
    def block(self) -> NDArray[np.uint32]:
        """Index into `labels` for a mark."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of operators and phases."""
        ...

    @property
    def label(self) -> NDArray[np.uint32] | None:
        """Index into `labels` of each event, where known."""
        ...


@dataclass(frozen=True)
class Leak:
    """A block that lives: address, requested and allocated bytes, and who asked for it.

    `request` is the number of requests before its own, failed ones too; `step` the number of
    steps that had begun; `label` the operator or phase, empty when it is not known.
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


def leaks(allocator: Allocator, trace: LabelledTrace | None = None) -> list[Leak]:
    """The blocks that live in an allocator with a `check` layer, in the order of the requests.

    With the trace that the allocator has served, and nothing before it, each has the label of its
    alloc: the event's own, or that of the last mark. Raises SpecError for an allocator without
    that layer, and ValueError for a trace that has fewer allocs than were asked for.
    """
    live = _core.live(allocator)
    labels = _labels(trace, [one.request for one in live]) if trace else [""] * len(live)
    return [
        Leak(
            address=one.block.address,
            requested=one.block.requested,
            size=one.block.size,
            stream=one.stream,
            request=one.request,
            step=one.step,
            label=label,
        )
        for one, label in zip(live, labels, strict=True)
    ]


def _labels(trace: LabelledTrace, requests: list[int]) -> list[str]:
    import numpy as np

    events = np.flatnonzero(trace.op == _ALLOC)
    if requests and requests[-1] >= len(events):
        raise ValueError(
            f"the trace has {len(events)} allocs, but the allocator was asked for more: "
            f"request {requests[-1]} (from 0)"
        )
    asked = events[requests]
    if trace.label is not None:
        return [trace.labels[index] for index in trace.label[asked].tolist()]
    marks = np.flatnonzero(trace.op == _MARK)
    last = np.searchsorted(marks, asked) - 1
    return [trace.labels[trace.block[marks[at]]] if at >= 0 else "" for at in last.tolist()]
