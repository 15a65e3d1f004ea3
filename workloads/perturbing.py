# SPDX-License-Identifier: Apache-2.0
"""Traces of the same program on another day: its steps in another order, its frees a little later.

Blocks that live and die within one step go where their step goes. Those that outlive a step
(weights, caches, gradients) stay where they are in the sequence of steps, at the same share of the
step's events. So every block is still freed after it was allocated, and the trace is valid.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import FREE, MARK, Trace, spans

_FEWEST_STEPS = 3  # of which there is another order, the first staying where it is
_LATEST = 16  # events by which a free may be late

Ints = NDArray[np.int64]


def perturbed(trace: Trace, seed: int) -> Trace:
    """The same blocks in another order that the program could have had; valid if `trace` is.

    With three steps or more, those after the first are shuffled; with fewer, and where all are
    alike, each free comes up to 16 events later. Ids become the numbers of the allocs;
    times are left out. Equal seeds give equal traces.
    """
    random = np.random.default_rng(seed)
    block = _numbered(trace)
    order = np.arange(len(trace))
    if trace.steps >= _FEWEST_STEPS:
        order = _shuffled_steps(trace, block, random)
    if all(np.array_equal(one, one[order]) for one in (trace.op, trace.size)):
        order = _late_frees(trace, random)
    ids = np.where(trace.op <= FREE, block, trace.block)[order].astype(np.uint32)
    made = replace(
        trace,
        op=trace.op[order],
        block=ids,
        size=trace.size[order],
        stream=trace.stream[order],
        time_ns=None,
        label=None if trace.label is None else trace.label[order],
        provenance=replace(trace.provenance, seed=seed),
    )
    made.validate()
    return made


def _numbered(trace: Trace) -> Ints:
    """Of each alloc and free the number of its block's alloc; 0 for other events."""
    allocs, ends = spans(trace.op, trace.block)
    found = np.zeros(len(trace) + 1, np.int64)
    found[allocs] = np.arange(len(allocs))
    found[ends] = np.arange(len(allocs))  # those never freed write past the last event
    return found[:-1]


def _shuffled_steps(trace: Trace, block: Ints, random: np.random.Generator) -> Ints:
    """The events in an order in which all steps but the first have changed places."""
    count = len(trace)
    begins = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    step = np.searchsorted(begins, np.arange(count), side="right")  # 0: before the first
    edges = np.concatenate([[0], begins, [count]])
    share = (np.arange(count) - edges[step]) / np.maximum(1, np.diff(edges)[step])

    allocs, ends = spans(trace.op, trace.block)
    last = np.append(step, len(edges))[ends]
    stays = step[allocs] != last  # by block
    moves = ~((trace.op <= FREE) & stays[block]) if len(allocs) else np.ones(count, np.bool_)
    place = np.arange(len(edges) - 1)
    place[2:] = 2 + random.permutation(len(place) - 2)  # the first step makes what stays
    to = np.where(moves, place[step], step)
    # Within a place: the mark first, then by share; of equal ones the earlier event.
    return np.lexsort((np.arange(count), share, to))


def _late_frees(trace: Trace, random: np.random.Generator) -> Ints:
    """The events with each free up to `_LATEST` events later."""
    late = np.where(trace.op == FREE, random.integers(0, _LATEST + 1, len(trace)), 0)
    return np.argsort(np.arange(len(trace)) + late, kind="stable")
