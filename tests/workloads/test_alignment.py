# SPDX-License-Identifier: Apache-2.0
"""The agreement of two traces: compared with dynamic programming, and on constructed traces."""

from hypothesis import given
from hypothesis import strategies as st

from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Trace
from allocbench.workloads.alignment import EqualEvents, Symbol, agreement, common
from tests.traces import make, message_of, valid_traces

symbols = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=40)


def table(left: list[Symbol], right: list[Symbol]) -> int:
    """Longest common subsequence by dynamic programming, O(n m) on purpose."""
    row = [0] * (len(right) + 1)
    for symbol in left:
        last = row
        row = [0]
        for place, other in enumerate(right):
            row.append(last[place] + 1 if symbol == other else max(last[place + 1], row[place]))
    return row[-1]


@given(symbols, symbols)
def test_common_is_the_longest_common_subsequence(left: list[Symbol], right: list[Symbol]) -> None:
    assert common(left, right) == table(left, right) == common(right, left)


@given(valid_traces())
def test_a_trace_agrees_with_itself(trace: Trace) -> None:
    result = agreement(trace, trace)
    assert result.matched == result.old == result.new


CAPTURED = [(ALLOC, 0, 1000), (ALLOC, 1, 512), (FREE, 0, 0), (ALLOC, 2, 4096), (FREE, 1, 0)]
RECORDED = [
    (ALLOC, 7, 1024),
    (ALLOC, 3, 8_519_680),
    (ALLOC, 1, 512),
    (MARK, 0, 0),
    (FREE, 7, 0),
    (TRIM, 0, 0),
    (ALLOC, 2, 4096),
    (ALLOC, 7, 4096),
    (FREE, 1, 0),
]


def recorded() -> Trace:
    blocks = {7: 0, 3: 1, 1: 2, 2: 3}
    events = [(op, blocks[n] if op <= FREE else 0, size) for op, n, size in RECORDED]
    return make(events, labels=("step",))


def test_the_events_that_one_trace_misses() -> None:
    assert agreement(make(CAPTURED), recorded(), rounding=512) == EqualEvents(5, 7, 5)


def test_sizes_are_compared_exactly_unless_rounded() -> None:
    assert agreement(make(CAPTURED), recorded()).matched == 3


def test_consecutive_frees_have_no_order() -> None:
    allocs = [(ALLOC, 0, 1), (ALLOC, 1, 2)]
    left, other = ([*allocs, (FREE, first, 0), (FREE, 1 - first, 0)] for first in (0, 1))
    assert agreement(make(left), make(other)).matched == 4


def test_a_rounding_below_one_is_an_error() -> None:
    expected = "sizes cannot be rounded to multiples of 0"
    assert message_of(lambda: agreement(make([]), make([]), rounding=0)) == expected
