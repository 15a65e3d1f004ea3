# SPDX-License-Identifier: Apache-2.0
"""A replay that is kept: its device calls. Runners of other orders. What a report shows of many."""

import pytest

from allocbench.replays import trace_blocks
from allocbench.replays.replayed import replayed
from allocbench.replays.runner import Runner
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.workloads import ALLOC, FREE, MARK
from tests.traces import MIB, make

PAGE = 2 * MIB


def test_pages_that_follow_one_another_in_an_event_are_one_device_call() -> None:
    """3 pages, 1 that follows them in the next event, and all of them back in a trim."""
    trace = make([(ALLOC, 0, 3 * PAGE), (ALLOC, 1, PAGE), (FREE, 0, 0), (FREE, 1, 0), (3, 0, 0)])
    found = replayed(trace, "expandable", "sim:1GiB")
    begin = found.device_calls[0].address
    calls = [
        (call.event, call.action, call.address - begin, call.size) for call in found.device_calls
    ]
    assert calls[:2] == [(0, "segment_map", 0, 3 * PAGE), (1, "segment_map", 3 * PAGE, PAGE)]
    assert calls[2:] == [(4, "segment_unmap", 0, 4 * PAGE)]


@pytest.mark.parametrize(("capacity", "fits"), [(96, False), (112, True), (1 << 10, True)])
def test_orders_of_steps_whose_load_exceeds_the_device_are_left_out(
    capacity: int, fits: bool
) -> None:
    """Each step frees the block of the one before after it has its own: 112 MiB in all orders."""
    events = []
    for step in range(6):
        events += [(MARK, 1, 0), (ALLOC, 2 * step, (80 if step % 2 else 112) * MIB)]
        events += [(FREE, 2 * step, 0)]
    trace = make(events, labels=("", "step"))
    orders = Runner(trace, f"sim:{capacity}MiB").other_orders(3, 1)
    assert (len(orders) > 0) is fits
    assert all(order.trace.max_load == 112 * MIB for order in orders)


def test_of_too_many_blocks_a_report_shows_those_of_the_peak_and_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks 4 and 5 are alive at the peak. Block 1 has 40 bytes in 4 events, block 3 50 in one."""
    events = [(ALLOC, 0, 5), (ALLOC, 1, 40), (ALLOC, 2, 1), (FREE, 2, 0), (FREE, 0, 0)]
    events += [(FREE, 1, 0), (ALLOC, 3, 50), (FREE, 3, 0), (ALLOC, 4, 2), (ALLOC, 5, 99)]
    trace = make(events)
    shown = {}
    for most in (6, 4, 3, 2):
        monkeypatch.setattr(trace_blocks, "_MOST_OF_PROGRAM", most)
        shown[most] = TraceBlocks.of("made", trace, 1)._kept().tolist()
    assert shown == {6: [0, 1, 2, 3, 4, 5], 4: [1, 3, 4, 5], 3: [1, 4, 5], 2: [4, 5]}
