# SPDX-License-Identifier: Apache-2.0
"""What holds memory at an instant of a training run: parameters, gradients, activations, ...

The kinds follow from when a block is allocated and freed, as those of torch.profiler's memory
timeline do (torch/profiler/_memory_profiler.py): a gradient is a block of a parameter's size that a
backward pass leaves behind. A trace shows passes by its labels: PyTorch marks `Optimizer.step`, and
the threads of the autograd engine have no Python frames, so that allocs of a backward pass have no
label while those of a forward pass have a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench.base.text import one_line
from allocbench.reports import units
from allocbench.workloads import MARK, Trace
from allocbench.workloads.trace import spans

PARAMETERS = "parameters"
GRADIENTS = "gradients"
STATE = "optimizer state"
ACTIVATIONS = "activations and inputs"
FORWARD = "temporaries of the forward pass"
BACKWARD = "temporaries of the backward pass"
UPDATE = "temporaries of the optimizer"
LASTING = "buffers and parameters without gradients"
WORKSPACES = "workspaces and other memory that lasts"
UNKNOWN = ""
_UPDATE_BEGINS = "Optimizer.step#"

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Steps:
    """Events at which the optimizer's updates begin and end, one pair per step."""

    begins: Ints
    ends: Ints


def holders(trace: Trace, event: int | None = None) -> pd.DataFrame:
    """What is alive after an event (None: at the peak of the load), largest first.

    Columns: kind (empty if the trace does not say), place (the label of the allocs), blocks, bytes
    (requested).
    """
    if event is None:
        load = trace.load
        event = int(load.argmax()) if len(load) else 0
    allocs, ends = spans(trace.op, trace.block)
    alive = np.flatnonzero((allocs <= event) & (ends > event))
    kind = _kinds(trace, allocs, ends)
    label = trace.label[allocs] if trace.label is not None else np.zeros(len(allocs), np.uint32)
    names = np.array(trace.labels if len(trace.labels) else ("",), dtype=object)
    rows = pd.DataFrame(
        {
            "kind": kind[alive],
            "place": names[label[alive]],
            "blocks": 1,
            "bytes": trace.size[allocs[alive]].astype(np.int64),
        }
    )
    summed = rows.groupby(["kind", "place"], as_index=False, sort=True).sum()
    return summed.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def by_kind(held: pd.DataFrame, most: int = 3) -> pd.DataFrame:
    """The kinds of what `holders` found, largest first.

    Columns: kind, blocks, bytes, share (of all bytes) and places: the `most` largest, with the
    bytes of each.
    """
    total = max(1, int(held["bytes"].sum()))
    rows = [
        {
            "kind": kind,
            "blocks": int(group["blocks"].sum()),
            "bytes": int(group["bytes"].sum()),
            "share": int(group["bytes"].sum()) / total,
            "places": [
                (place, int(size))
                for place, size in zip(group["place"], group["bytes"], strict=True)
                if place
            ][:most],
        }
        for kind, group in held.groupby("kind", sort=True)
    ]
    found = pd.DataFrame(rows, columns=["kind", "blocks", "bytes", "share", "places"])
    return found.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def places_in_words(places: Sequence[tuple[str, int]]) -> str:
    """Places with their bytes: "train.py:7:step 1.50 GiB, train.py:9:step 12.0 MiB"."""
    return ", ".join(f"{one_line(place)} {units.size(size)}" for place, size in places)


def _kinds(trace: Trace, allocs: Ints, ends: Ints) -> NDArray[np.object_]:
    """The kind of each block, numbered by its alloc."""
    kind = np.full(len(allocs), UNKNOWN, dtype=object)
    steps = _steps(trace)
    if trace.label is None or not len(steps.begins):
        return kind
    size = trace.size[allocs].astype(np.int64)
    first_end, last_end = int(steps.ends[0]), int(steps.ends[-1])
    step = np.searchsorted(steps.ends, allocs)  # the number of the step of each alloc
    whole = step < len(steps.ends)
    begin = np.where(whole, steps.begins[np.minimum(step, len(steps.begins) - 1)], len(trace))
    end = np.where(whole, steps.ends[np.minimum(step, len(steps.ends) - 1)], len(trace))

    update = (allocs > begin) & (allocs < end)
    unlabelled = np.array([not name for name in trace.labels])
    backward = unlabelled[trace.label[allocs]] & ~update
    forward = ~backward & ~update
    lasting = (ends > last_end) & (allocs < last_end)
    backward_at = allocs[backward]
    first_backward = int(backward_at[0]) if len(backward_at) else first_end

    next_backward = np.searchsorted(backward_at, allocs)
    meets = np.append(backward_at, len(trace))[next_backward]
    saved = forward & ~lasting & (meets < begin) & (ends > meets)
    first_saved = int(allocs[saved][0]) if saved.any() else first_backward

    left = backward & (ends > begin)
    # Not the workspaces of cuBLAS, one for each thread: they come after the first input.
    initial = forward & lasting & (allocs < first_saved)
    sizes = np.intersect1d(size[left], size[initial])

    kind[forward] = FORWARD
    kind[saved] = ACTIVATIONS
    kind[forward & lasting] = WORKSPACES
    kind[initial] = LASTING
    kind[initial & np.isin(size, sizes)] = PARAMETERS
    kind[backward] = BACKWARD
    kind[backward & lasting] = WORKSPACES
    kind[left & np.isin(size, sizes)] = GRADIENTS
    kind[update] = UPDATE
    kind[update & (ends > end)] = STATE
    return kind


def _steps(trace: Trace) -> _Steps:
    """The complete steps. If a step has several updates, its end begins with the first."""
    marks = np.flatnonzero(trace.op == MARK)
    names = [trace.labels[int(label)] for label in trace.block[marks]]
    begins, ends = list[int](), list[int]()
    begun: int | None = None
    for mark, name in zip(marks.tolist(), names, strict=True):
        if name.startswith(_UPDATE_BEGINS):
            begun = mark
        elif name == "step" and begun is not None:
            begins.append(begun)
            ends.append(mark)
            begun = None
    return _Steps(np.array(begins, np.int64), np.array(ends, np.int64))
