# SPDX-License-Identifier: Apache-2.0
"""The first failed request: which one, what is alive there, and what it is called."""

import pytest

from allocbench.questions.failure import before, first_failure, operators
from allocbench.workloads import ALLOC, FREE, MARK, Provenance
from tests.traces import Event, held_at_start, make

KIB = 1 << 10
EVENTS: list[Event] = [
    (MARK, 1, 0),
    (ALLOC, 0, 400 * KIB),
    (ALLOC, 1, 200 * KIB),
    (FREE, 0, 0),
    (MARK, 1, 0),
    (ALLOC, 2, 300 * KIB),
    (ALLOC, 3, 100 * KIB),
    (ALLOC, 4, 500 * KIB),
    (FREE, 2, 0),
    (ALLOC, 5, KIB),
    (FREE, 1, 0),
]
"""The third alloc from the end has 600 KiB alive before it."""


@pytest.mark.parametrize(
    ("capacity", "event", "alive", "step"),
    [
        (1100, None, [], 0),
        (1099, 7, [1, 2, 3], 2),
        (600, 7, [1, 2, 3], 2),
        (599, 2, [0], 1),
        (399, 1, [], 1),
    ],
)
def test_what_is_alive_at_a_failure(
    capacity: int, event: int | None, alive: list[int], step: int
) -> None:
    """Blocks that came before and are freed later or never; with naive, there is no rounding."""
    trace = make(EVENTS, labels=("", "step"))
    sizes = [size for op, _, size in EVENTS if op == ALLOC]
    found = first_failure(trace, "naive", f"sim:{capacity}KiB")
    if event is None:
        assert found is None
        return
    assert found is not None
    assert (found.event, found.step) == (event, step)
    assert found.live == found.allocated == found.reserved == sum(sizes[n] for n in alive)
    assert found.requested == EVENTS[event][2]
    assert found.room == capacity * KIB - found.live
    assert found.free == found.largest_free == 0
    assert found.load == max(1100 * KIB, found.live + found.requested)
    assert found.operator == "step"


def test_the_events_before_one_are_a_trace_of_their_own() -> None:
    trace = make(EVENTS, labels=("", "step"))
    for end in range(len(EVENTS) + 1):
        cut = before(trace, end)
        assert len(cut) == end
        assert cut.first_broken() is None
        assert cut.size.tolist() == trace.size[:end].tolist()


def test_an_operator_is_a_label_or_else_the_last_mark() -> None:
    import numpy as np

    labels = ("", "step", "mul", "second")
    events: list[Event] = [(ALLOC, 0, 1), (MARK, 1, 0), (ALLOC, 1, 1), (MARK, 3, 0), (ALLOC, 2, 1)]
    at = np.array([0, 2, 4])
    assert operators(make(events, labels=labels), at) == ["", "step", "second"]
    label = np.array([0, 0, 2, 0, 0], np.uint32)
    assert operators(make(events, labels=labels, label=label), at) == ["", "mul", "second"]
    imported = make(events, labels=labels, label=label, provenance=Provenance(kind="imported"))
    assert operators(imported, at) == ["", "mul", ""]


@pytest.mark.parametrize(("capacity", "event"), [("4MiB", 1), ("1MiB", 0)])
def test_a_device_that_is_too_small_for_what_was_held(capacity: str, event: int) -> None:
    held, layout = held_at_start()
    trace = make(held, layout=layout, provenance=Provenance(live_at_start=len(held)))
    found = first_failure(trace, "naive", f"sim:{capacity}")
    assert found is not None
    assert (found.event, found.requested) == (event, held[event][2])
