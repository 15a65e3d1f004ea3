# SPDX-License-Identifier: Apache-2.0
"""The phases of a trace: found, and stated by a user."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from allocbench.base.trace import CAPTURE_BEGIN, CAPTURE_END
from allocbench.errors import UsageError
from allocbench.questions.per_phase import Phase, given, phases
from allocbench.workloads import ALLOC, FREE, MARK, PrivatePool, Trace, catalog
from tests.traces import Event, make

STEP: Event = (MARK, 0, 0)


def alive(*sizes: int) -> list[Event]:
    """An alloc and a free of each size."""
    return [event for size in sizes for event in ((ALLOC, 0, size), (FREE, 0, 0))]


def trace_of(*parts: list[Event]) -> Trace:
    events = [event for part in parts for event in part]
    pool = np.array([int(op >= CAPTURE_BEGIN) for op, _, _ in events], np.uint16)
    return make(events, labels=("step",), pool=pool, pools=(PrivatePool("1.0"),))


def names(found: list[Phase]) -> list[tuple[str, int]]:
    return [(phase.name, phase.begin) for phase in found]


def test_the_warm_up_ends_when_a_step_repeats() -> None:
    steps = [[STEP, *alive(*sizes)] for sizes in [(1,), (2,), *[(3, 4)] * 10]]
    found = phases(trace_of(alive(9), *steps))
    assert names(found) == [("load", 0), ("warm-up", 2), ("steady", 8)]
    assert all(one.end == other.begin for one, other in pairwise(found))
    assert found[-1].end == 8 + 10 * 5


def test_steps_that_repeat_from_the_first_one_on_have_no_warm_up() -> None:
    found = phases(trace_of(alive(9), *[[STEP, *alive(1, 2)]] * 4))
    assert names(found) == [("load", 0), ("steady", 2)]


def test_steps_that_repeat_in_another_order_repeat() -> None:
    found = phases(trace_of(alive(9), [STEP, *alive(1, 2)], [STEP, *alive(2, 1)]))
    assert names(found) == [("load", 0), ("steady", 2)]


def test_steps_that_never_repeat_warm_up_in_the_first_one() -> None:
    steps = [[STEP, *alive(size)] for size in range(1, 9)]
    assert names(phases(trace_of(alive(9), *steps))) == [("load", 0), ("warm-up", 2), ("steady", 5)]
    late = [*steps, [STEP, *alive(8)]]  # the first repetition is after a quarter of the steps
    assert names(phases(trace_of(alive(9), *late))) == [("load", 0), ("warm-up", 2), ("steady", 5)]


def test_a_single_step_is_steady() -> None:
    assert names(phases(trace_of(alive(9), [STEP, *alive(1)]))) == [("load", 0), ("steady", 2)]


def test_captures_are_a_phase_and_end_the_warm_up() -> None:
    capture = [(CAPTURE_BEGIN, 0, 0), *alive(5), (CAPTURE_END, 0, 0)]
    steps = [[STEP, *alive(1)]] * 3
    found = phases(trace_of(alive(9), *steps, capture, alive(7), capture, *steps))
    assert names(found) == [("load", 0), ("warm-up", 2), ("capture", 11), ("steady", 21)]
    without_steps = phases(trace_of(alive(9), capture, alive(7)))
    assert names(without_steps) == [("load", 0), ("capture", 2), ("steady", 6)]
    open_end = phases(trace_of(alive(9), [(CAPTURE_BEGIN, 0, 0), *alive(5)]))
    assert names(open_end) == [("load", 0), ("capture", 2)]


def test_phases_without_memory_are_left_out() -> None:
    assert names(phases(trace_of([STEP, *alive(1)], [STEP, *alive(2)]))) == [
        ("warm-up", 0),
        ("steady", 3),
    ]
    assert names(phases(trace_of([(MARK, 0, 0)], [STEP, *alive(1)]))) == [("steady", 0)]


def test_a_trace_without_steps_and_captures_has_no_phases() -> None:
    assert phases(trace_of(alive(1, 2))) == []


def test_bundled_programs_have_phases() -> None:
    found = phases(catalog.load("gpt2-train"))
    assert names(found) == [("load", 0), ("warm-up", 151), ("steady", 3075)]


def test_a_user_states_where_phases_begin() -> None:
    trace = trace_of(alive(9), *[[STEP, *alive(1)]] * 3)
    assert names(given("a=0,b=step2, c=8", trace)) == [("a", 0), ("b", 5), ("c", 8)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "'a' is not NAME=EVENT"),
        ("a=0,b=-1", "'b=-1' is not NAME=EVENT"),
        ("a=0,", "'' is not NAME=EVENT"),
        ("a=0,a=3", "'a' is given twice"),
        ("a=0,b=step4", "there is no step 4; the trace has 3"),
        ("a=0,b=step0", "there is no step 0; the trace has 3"),
        ("a=0,b=11", "there is no event 11; the trace has 11"),
        ("a=2", "the first phase must begin at event 0, not 2"),
        ("a=0,b=6,c=5", "'c' begins at event 5, not after 'b' at event 6"),
        ("a=0,b=2,c=3", "'b' has no alloc and no free"),
    ],
)
def test_phases_that_do_not_exist_are_refused(text: str, said: str) -> None:
    trace = trace_of(alive(9), *[[STEP, *alive(1)]] * 3)
    with pytest.raises(UsageError) as caught:
        given(text, trace)
    assert str(caught.value).startswith("--phases: ")
    assert said in str(caught.value)
