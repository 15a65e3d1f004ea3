# SPDX-License-Identifier: Apache-2.0
"""Traces whose requests fit every allocator, for tests of exporters."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Trace
from tests.traces import valid_traces

_LARGEST = 3 << 20  # bytes of a request


@st.composite
def replayable(draw: st.DrawFn, trims: bool = True) -> Trace:
    """Traces with at least one alloc, whose requests are small; without times."""
    trace = draw(valid_traces().filter(lambda trace: trace.allocs))
    kept = np.ones(len(trace), np.bool_) if trims else trace.op != TRIM
    size = np.where(trace.op == ALLOC, trace.size % _LARGEST + 1, 0).astype(np.uint64)
    return replace(
        trace,
        op=trace.op[kept],
        block=trace.block[kept],
        size=size[kept],
        stream=trace.stream[kept] % 3,
        label=None if trace.label is None else trace.label[kept],
        time_ns=None,
    )


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    """Events, with blocks and streams numbered in order of appearance; stream 0 stays 0."""
    blocks: dict[int, int] = {}
    streams = {0: 0}
    allocs = 0
    rows: list[tuple[Any, ...]] = []
    for n, op in enumerate(trace.op.tolist()):
        block, stream = int(trace.block[n]), int(trace.stream[n])
        if op == MARK:
            rows.append((op, trace.labels[block]))
            continue
        if op == ALLOC:
            blocks[block] = allocs
            allocs += 1
        label = trace.labels[trace.label[n]] if op == ALLOC and trace.label is not None else ""
        number = streams.setdefault(stream, len(streams)) if op <= FREE else 0
        rows.append((op, blocks.get(block), int(trace.size[n]), number, label))
    return rows


SPECS = [
    *allocators.names(),
    "bfc:coalesce_regions=true,garbage_collection=true",
    "caching:expandable_segments=true",
    "slab:slab=4KiB",
    "per_stream:of=caching",
    "limit:bytes=6MiB,of=naive",
]
