# SPDX-License-Identifier: Apache-2.0
"""The rules of a valid trace, and the messages of broken ones."""

from dataclasses import replace
from typing import Any

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


def test_labels_are_text_that_can_be_written() -> None:
    trace = make([(MARK, 1, 0)], labels=("a\ud800b", "step"))
    assert "".join(trace.labels).encode()
    assert [*map(len, trace.labels)] == [3, 4]
    assert trace.step_label == 1


def test_a_trace_without_blocks() -> None:
    trace = make([(MARK, 0, 0)], labels=("forward",))
    trace.validate()
    assert (trace.blocks, trace.allocs, trace.steps, trace.max_load) == (0, 0, 0, 0)
    assert trace.step_label == -1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": np.ones(4, np.uint64)}, "column 'size' has shape (4,), not (5,)"),
        ({"size": np.ones(5, np.int64)}, "column 'size' is int64, not uint64"),
        ({"op": make(GOOD).op[::-1]}, "event 0: size 100 on an event that is not an alloc"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, Any], message: str) -> None:
    assert message_of(replace(make(GOOD), **changes).validate) == message


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
