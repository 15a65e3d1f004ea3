# SPDX-License-Identifier: Apache-2.0
"""allocbench.workloads.step_orders: the same blocks in another order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog, lifetimes
from allocbench.workloads.step_orders import other_orders, shuffled
from tests.traces import Event, assert_same, make, valid_traces


def sizes_of(trace: Trace) -> list[int]:
    return sorted(trace.size[trace.op == ALLOC].tolist())


@settings(max_examples=200)
@given(valid_traces(), st.integers(0, 5))
def test_any_valid_trace_stays_valid_and_keeps_its_events(trace: Trace, seed: int) -> None:
    created = shuffled(trace, seed)
    if created is None:
        return
    assert trace.steps >= 3
    created.validate()
    assert sizes_of(created) == sizes_of(trace)
    for op in range(4):
        assert np.count_nonzero(created.op == op) == np.count_nonzero(trace.op == op)
    assert created.steps == trace.steps
    again = shuffled(trace, seed)
    assert again is not None
    assert_same(created, again)


def test_orders_differ_from_each_other_and_none_is_made_up() -> None:
    trace = catalog.load("llama3-8b-lora")  # three steps, of which the last two can change places
    (other,) = other_orders(trace, 3, 0)
    assert not np.array_equal(other.size, trace.size)
    many = other_orders(catalog.load("vit-serve"), 3, 0)
    assert len(many) == len({one.size.tobytes() for one in many}) == 3


def test_few_or_equal_steps_have_no_other_order() -> None:
    step: list[Event] = [(MARK, 1, 0), (ALLOC, 0, 8), (FREE, 0, 0)]
    larger: list[Event] = [(MARK, 1, 0), (ALLOC, 0, 9), (FREE, 0, 0)]
    labels = ("", "step")
    assert shuffled(make([(ALLOC, 0, 1)]), 1) is None
    assert shuffled(make([*step, *larger], labels=labels), 1) is None
    assert shuffled(make(step * 5, labels=labels), 1) is None
    found = [shuffled(make([*step, *step, *larger], labels=labels), seed) for seed in range(20)]
    assert any(trace is not None for trace in found)


def test_steps_are_shuffled_but_not_blocks_that_outlive_them() -> None:
    steps = 6
    events: list[Event] = [(ALLOC, 0, 7)]
    for step in range(steps):  # a block of the step itself, and one that the next step frees
        events += [(MARK, 1, 0), (ALLOC, 1, 100 + step), (ALLOC, 2 + step, 1000 + step)]
        events += [(FREE, 1 + step, 0)] if step else []
        events += [(FREE, 1, 0)]
    events[-2:] = [(FREE, 1, 0), (FREE, steps, 0)]  # in another order
    trace = make(events, labels=("", "step"))
    trace.validate()
    created = shuffled(trace, 4)
    assert created is not None
    sizes = created.size.tolist()
    carried = [size for size in sizes if size >= 1000]
    assert carried == list(range(1000, 1000 + steps))
    own = [size for size in sizes if 100 <= size < 200]
    assert own[0] == 100
    assert own != sorted(own)
    assert sorted(own) == list(range(100, 100 + steps))
    spans = lifetimes(created)
    assert int(spans.last[0]) == len(created)
    own_spans = (spans.last - spans.first)[(spans.size >= 100) & (spans.size < 200)]
    assert own_spans.max() <= 4
