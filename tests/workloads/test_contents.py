# SPDX-License-Identifier: Apache-2.0
"""allocbench.workloads.contents: counts of the events of a trace, in parts of any length."""

from collections import Counter
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocbench.workloads import ALLOC, FREE, MARK, PrivatePool, Trace
from allocbench.workloads.contents import contents
from tests.traces import in_parts, make, valid_traces

MOST = 4


def largest_of(trace: Trace) -> list[tuple[Any, ...]]:
    """Bytes, alloc, id, label and free of the largest blocks, from the definition."""
    found: list[tuple[Any, ...]] = []
    events = list(zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True))
    for event, (op, block, size) in enumerate(events):
        if op == ALLOC:
            frees = [n for n in range(event, len(events)) if events[n][:2] == (FREE, block)]
            label = None if trace.label is None else int(trace.label[event])
            found.append((size, event, block, label, min(frees, default=None)))
    return sorted(found, key=lambda row: row[:2], reverse=True)[:MOST]


@given(valid_traces(), st.integers(1, 70), st.booleans())
def test_contents_follow_their_definitions(trace: Trace, events: int, equal: bool) -> None:
    if equal:  # many blocks of the same size
        sizes = np.where(trace.op == ALLOC, trace.size % np.uint64(2) + np.uint64(1), 0)
        trace = replace(trace, size=sizes.astype(np.uint64))
    is_alloc = trace.op == ALLOC
    for found in (contents(trace, MOST), contents(in_parts(trace, events), MOST)):
        assert found.events == Counter(trace.op.tolist())
        assert found.marks == Counter(trace.block[trace.op == MARK].tolist())
        assert found.blocks == trace.blocks
        counted = zip(found.sizes.values.tolist(), found.sizes.counts.tolist(), strict=True)
        assert dict(counted) == Counter(trace.size[is_alloc].tolist())
        rows = [astuple(held) for held in found.largest]
        assert [(*row[:4], row[5]) for row in rows] == largest_of(trace)


def test_modelled_workspaces_are_added_up_over_the_parts() -> None:
    labels = ("", "conv [modelled: fft]", "attention [modelled: rows]", "gemm [modelled: fft]")
    label = np.array([1, 0, 3, 2, 1], np.uint32)
    trace = make([(ALLOC, n, 10 + n) for n in range(5)], labels=labels, label=label)
    for found in (contents(trace, 1), contents(in_parts(trace, 2), 1)):
        assert found.modelled == {"fft": (3, 36), "rows": (1, 13)}


def test_allocs_are_counted_by_pool() -> None:
    pool = np.array([0, 2, 0, 2], np.uint16)
    trace = make(
        [(ALLOC, 0, 5), (ALLOC, 1, 7), (FREE, 1, 0), (ALLOC, 2, 1)],
        pool=pool,
        pools=(PrivatePool("a"), PrivatePool("b")),
    )
    for found in (contents(trace, 1), contents(in_parts(trace, 1), 1)):
        assert found.allocs_of_pool == {0: 1, 2: 2}


def test_a_trace_without_events() -> None:
    found = contents(make([]), 3)
    assert (found.blocks, len(found.sizes), found.largest) == (0, 0, [])
