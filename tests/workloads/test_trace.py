# SPDX-License-Identifier: Apache-2.0
"""The rules of a valid trace, and the messages of broken ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.workloads import ALLOC, FREE, MARK, Trace, trace
from tests.traces import GOOD, Event, make, message_of, valid_traces


@given(valid_traces())
def test_properties_match_a_plain_count(trace: Trace) -> None:
    trace.validate()
    live: dict[int, int] = {}
    most = steps = 0
    rows = zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True)
    for op, block, size in rows:
        if op == ALLOC:
            live[block] = size
        elif op == FREE:
            del live[block]
        steps += op == MARK and trace.labels[block] == "step"
        most = max(most, sum(live.values()))
    assert trace.max_load == most
    assert trace.steps == steps
    assert trace.step_label == 1
    ids = trace.block[trace.op <= FREE]
    assert trace.blocks == len(set(ids.tolist()))
    assert trace.allocs == int((trace.op == ALLOC).sum())


def test_a_trace_without_blocks() -> None:
    trace = make([(MARK, 0, 0)], labels=("forward",))
    trace.validate()
    assert (trace.blocks, trace.allocs, trace.steps, trace.max_load) == (0, 0, 0, 0)
    assert trace.step_label == -1


BROKEN: dict[str, tuple[Trace, str]] = {
    "double alloc": (
        make([*GOOD, (ALLOC, 0, 5)]),
        "event 5: alloc of block 0, which is already live",
    ),
    "double free": (make([*GOOD, (FREE, 1, 0)]), "event 5: free of block 1, which is not live"),
    "free of a block never made": (
        make([(ALLOC, 0, 1), (FREE, 1, 0), (ALLOC, 1, 1)]),
        "event 1: free of block 1, which is not live",
    ),
    "size 0": (make([(ALLOC, 0, 9), (ALLOC, 1, 0)]), "event 1: alloc of block 1 has size 0"),
    "huge size": (
        make([(ALLOC, 0, 2**63)]),
        "event 0: size 9223372036854775808 is above 9223372036854775807 bytes",
    ),
    "size of a free": (
        make([(ALLOC, 0, 9), (FREE, 0, 9)]),
        "event 1: size 9 on an event that is not an alloc",
    ),
    "id not dense": (
        make([*GOOD, (ALLOC, 4, 1)]),
        "event 5: block id 4 is out of range: there are 4 allocs",
    ),
    "unknown op": (make([*GOOD, (10, 0, 0)]), "event 5: unknown op 10"),
    "mark label": (
        make([(MARK, 0, 0), (MARK, 1, 0)], labels=("step",)),
        "event 1: mark label 1 is out of range: there are 1 labels",
    ),
    "label": (
        make([(ALLOC, 0, 1), (FREE, 0, 0)], labels=("mm",), label=np.array([0, 1], np.uint32)),
        "event 1: label is out of range: there are 1 labels",
    ),
    "length": (
        replace(make(GOOD), size=np.ones(4, np.uint64)),
        "column 'size' has shape (4,), not (5,)",
    ),
    "type": (
        replace(make(GOOD), size=np.ones(5, np.int64)),
        "column 'size' is int64, not uint64",
    ),
    "the earliest of several": (
        make([(ALLOC, 0, 1), (FREE, 0, 0), (FREE, 0, 0), (ALLOC, 0, 0), (10, 0, 0)]),
        "event 2: free of block 0, which is not live",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_each_broken_rule_is_named_with_its_event(rule: str) -> None:
    trace, message = BROKEN[rule]
    assert message_of(trace.validate) == message


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=40
    ),
    st.integers(1, 7),
)
@settings(max_examples=300)
def test_the_first_broken_rule_is_found_in_any_part(events: list[Event], chunk: int) -> None:
    """Compared with a walk over the events, for any size of the parts that are checked at once."""
    allocs = sum(op == ALLOC for op, _, _ in events)
    live: set[int] = set()
    expected = None
    for event, (op, block, size) in enumerate(events):
        wrong_size = (size == 0) == (op == ALLOC)
        if block >= allocs or wrong_size or (block in live) == (op == ALLOC):
            expected = event
            break
        live ^= {block}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_CHUNK", chunk)
        broken = make(events).first_broken()
    assert (broken and broken.event) == expected
