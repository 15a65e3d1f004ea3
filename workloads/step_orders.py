# SPDX-License-Identifier: Apache-2.0
"""Other orders of the steps of a trace.

Blocks that are allocated and freed within one step move with their step. Blocks that outlive a step
(weights, caches, gradients) keep their position in the sequence of steps, at the same fraction of a
step's events. So every block is still freed after it was allocated, and the trace stays valid.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import ALLOC, FREE, MARK, Trace, spans

FEWEST_STEPS = 3
"""The first step is not moved, so fewer steps have no other order."""

_DRAWS = 5  # orders drawn for each that is wanted: a few steps have few orders
Ints = NDArray[np.int64]


def shuffled(trace: Trace, seed: int) -> Trace | None:
    """The same blocks with the steps after the first in another order; valid if `trace` is.

    None if no order is another one: with fewer than three steps, or if the order that the seed
    gives has the same requests and frees. Block ids become the numbers of the allocs; times are
    dropped. The same seed gives the same trace.
    """
    if trace.steps < FEWEST_STEPS:
        return None
    block = _numbered(trace)
    order = _shuffled_steps(trace, block, np.random.default_rng(seed))
    if all(np.array_equal(column, column[order]) for column in (trace.op, trace.size)):
        return None
    ids = np.where(trace.op <= FREE, block, trace.block)[order].astype(np.uint32)
    variation = replace(
        trace,
        op=trace.op[order],
        block=ids,
        size=trace.size[order],
        stream=trace.stream[order],
        time_ns=None,
        pool=None if trace.pool is None else trace.pool[order],
        **trace.named(lambda column: column[order]),
        provenance=replace(trace.provenance, seed=seed),
    )
    variation.validate()
    return variation


def other_orders(trace: Trace, count: int, seed: int) -> list[Trace]:
    """Up to `count` traces of `shuffled` that differ from each other; none if there is no other."""
    found: list[Trace] = []
    if trace.steps < FEWEST_STEPS or kinds_of_steps(trace) < 2:
        return found
    for number in range(1, count * _DRAWS + 1):
        drawn = shuffled(trace, seed + number)
        if drawn is not None and not any(_same(drawn, other) for other in found):
            found.append(drawn)
        if len(found) == count:
            break
    return found


def kinds_of_steps(trace: Trace) -> int:
    """How many different sets of sizes the steps of a trace ask for; 0 without steps."""
    begins = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    edges = np.append(begins, len(trace))
    kinds = set()
    for begin, end in pairwise(edges.tolist()):
        sizes = trace.size[begin:end][trace.op[begin:end] == ALLOC]
        kinds.add(np.sort(sizes).tobytes())
    return len(kinds)


def _same(one: Trace, other: Trace) -> bool:
    """Whether two traces of as many events have the same requests and frees."""
    return np.array_equal(one.op, other.op) and np.array_equal(one.size, other.size)


def _numbered(trace: Trace) -> Ints:
    """For each alloc and free, the number of its block's alloc; 0 for other events."""
    allocs, ends = spans(trace.op, trace.block)
    number = np.zeros(len(trace) + 1, np.int64)
    number[allocs] = np.arange(len(allocs))
    number[ends] = np.arange(len(allocs))  # blocks that are never freed write past the last event
    return number[:-1]


def _shuffled_steps(trace: Trace, block: Ints, random: np.random.Generator) -> Ints:
    """An order of the events in which all steps except the first are shuffled."""
    count = len(trace)
    begins = np.flatnonzero((trace.op == MARK) & (trace.block == trace.step_label))
    step = np.searchsorted(begins, np.arange(count), side="right")  # 0: before the first
    edges = np.concatenate([[0], begins, [count]])
    share = (np.arange(count) - edges[step]) / np.maximum(1, np.diff(edges)[step])

    allocs, ends = spans(trace.op, trace.block)
    last = np.append(step, len(edges))[ends]
    stays = step[allocs] != last  # by block: True if it outlives its step
    moves = ~((trace.op <= FREE) & stays[block]) if len(allocs) else np.ones(count, np.bool_)
    place = np.arange(len(edges) - 1)
    place[2:] = 2 + random.permutation(
        len(place) - 2
    )  # the first step allocates the blocks that stay
    to = np.where(moves, place[step], step)
    # Within a place: the mark comes first, then events by fraction; ties keep their order.
    return np.lexsort((np.arange(count), share, to))
