# SPDX-License-Identifier: Apache-2.0
"""A trace without the order of frees that means nothing, so that repeated captures are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocbench.workloads.trace import FREE, Trace, spans


def ordered(trace: Trace) -> Trace:
    """The same trace with block ids in order of allocation and consecutive frees in order of id.

    Some programs free several blocks at once in an order that differs from run to run: autocast
    drops its cached weights in the order of a hash table. Frees between the same two events of
    other kinds have no meaningful order.
    """
    allocs, ends = spans(trace.op, trace.block)
    freed = ends < len(trace)
    block = trace.block.copy()
    block[allocs] = np.arange(len(allocs))
    block[ends[freed]] = np.flatnonzero(freed)
    frees = np.flatnonzero(trace.op == FREE)
    run = np.cumsum(trace.op != FREE)[frees]
    order = np.arange(len(trace))
    order[frees] = frees[np.lexsort((block[frees], run))]
    return replace(
        trace,
        block=block[order],
        stream=trace.stream[order],
        pool=None if trace.pool is None else trace.pool[order],
        **trace.named(lambda column: column[order]),
    )
