# SPDX-License-Identifier: Apache-2.0
"""Replays against slow and simple models of what they say, on unaligned sizes and addresses."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocbench import allocators
from allocbench.replays import LONG, experiment
from allocbench.replays.capacity import STEP, boundary
from allocbench.replays.details import in_the_way
from allocbench.replays.experiment import Effort
from allocbench.replays.replayed import replayed
from allocbench.replays.trace_blocks import TraceBlocks
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, PrivatePool, Trace
from tests.traces import MIB, make, valid_traces

SPECS = ("naive", "bfc", "caching", "expandable", "caching:expandable_segments=true", "slab")


def small(trace: Trace) -> Trace:
    """The same events with requests of up to 24 MiB, which are multiples of nothing."""
    sizes = np.where(trace.size > 0, trace.size % np.uint64(24 * MIB) + np.uint64(1), 0)
    return replace(trace, size=sizes.astype(np.uint64), time_ns=None)


Area = tuple[int, int, list[tuple[int, int]]]  # begin, end, blocks


def in_the_way_of(found: list[Area], requested: int, room: int) -> tuple[int, str]:
    """The fewest bytes that must go, and where: every place is tried.

    Whole areas that go also give back what they have.
    """
    load = [sum(end - begin for begin, end in blocks) for _, _, blocks in found]
    stretches = [
        sum(end - begin for begin, end in blocks if begin < at + requested and end > at)
        for low, high, blocks in found
        for at in sorted({low, *(end for _, end in blocks), *range(low, min(high, low + 99))})
        if at + requested <= high
    ]
    length = [high - low for low, high, _ in found]
    alone = [load[n] for n, one in enumerate(length) if room + one >= requested > room]
    emptiest, left = 0, room
    for n in sorted(range(len(found)), key=load.__getitem__):
        if left < requested:
            left, emptiest = left + length[n], emptiest + load[n]
    least = min([*stretches, *alone], default=emptiest)
    return least, "stretch" if stretches and min(stretches) == least else "segments"


class Model:
    """A trace, replayed call by call: what the allocator says after each event."""

    def __init__(self, trace: Trace, spec: str, device: str) -> None:
        self.made = allocators.make(spec, allocators.make_device(device))
        self.levels: list[Any] = []
        self.calls: list[int] = []
        self.largest: list[int] = []
        self.failed: list[Any] = []  # the segments at the first failed request
        self.alive: list[dict[int, tuple[int, int]]] = []  # address: alloc event and its size
        alive: dict[int, tuple[int, int]] = {}
        place: dict[int, int | None] = {}
        columns = (trace.op, trace.block, trace.size, trace.stream)
        for event, (op, block, size, stream) in enumerate(
            zip(*(c.tolist() for c in columns), strict=True)
        ):
            if op == ALLOC:
                try:
                    place[block] = self.made.allocate(size, stream)
                    alive[place[block]] = event, size  # type: ignore[index]
                except allocators.OutOfMemory:
                    place[block] = None
                    self.failed = self.failed or self.made.snapshot()
            elif op == FREE and (address := place.pop(block)) is not None:
                self.made.deallocate(address, stream)
                del alive[address]
            elif op == TRIM:
                self.made.trim()
            elif op == MARK and block == trace.step_label:
                self.made.step()
            self.levels.append(self.made.stats())
            self.calls.append(self.made.device.stats().calls)
            self.largest.append(self.made.largest_free())
            self.alive.append(dict(alive))


@settings(max_examples=40)
@given(valid_traces(), st.sampled_from(SPECS), st.sampled_from(["sim:64MiB", "sim:1TiB"]))
def test_a_kept_replay_is_what_the_allocator_says_call_by_call(
    drawn: Trace, spec: str, device: str
) -> None:
    trace = small(drawn)
    model, found = Model(trace, spec, device), replayed(trace, spec, device)
    for name in ("requested", "allocated", "reserved"):
        told = getattr(found, name).tolist()
        assert told == [getattr(level, name) for level in model.levels], name
    held = np.zeros(len(trace), np.int64)
    for call in found.device_calls:
        released = call.action in ("segment_free", "segment_unmap")
        held[call.event] += -call.size if released else call.size
    assert np.cumsum(held).tolist() == [level.reserved for level in model.levels]
    shown = {s.address: [(b.address, b.size, b.event) for b in s.blocks] for s in found.segments}
    alive = model.alive[-1]
    assert shown == {
        segment.address: [
            (b.address, b.size, alive[b.address][0] if b.allocated else -1) for b in segment.blocks
        ]
        for segment in model.made.snapshot()
    }
    pages = spec == "expandable" or "expandable_segments" in spec
    assert all(segment.expandable == pages for segment in found.segments)
    for event in np.flatnonzero(trace.op == ALLOC).tolist():
        places = [at for at, (begun, _) in model.alive[event].items() if begun == event]
        assert found.address[event] == (places[0] if places else 0)


@settings(max_examples=30)
@given(valid_traces(), st.sampled_from(SPECS), st.sampled_from(["sim:64MiB", "sim:1TiB"]))
def test_details_are_what_the_allocator_says_call_by_call(
    drawn: Trace, spec: str, device: str
) -> None:
    """The moments, the map of addresses, and the state before the first failed request."""
    trace = small(drawn)
    model, blocks = Model(trace, spec, device), TraceBlocks.of("made", trace)
    row, found = experiment.run(
        trace, spec, device, Effort(0, capacity=False), workload="made", trace_blocks=blocks
    )
    for moment in found["moments"].to_dict("records"):
        event = moment["event"]
        level, calls = model.levels[event], model.calls[event]
        lost, free = level.allocated - level.requested, level.reserved - level.allocated
        assert moment["device_calls"] == calls
        assert moment["internal_fragmentation"] == (lost / level.allocated if lost else 0)
        if not np.isnan(moment["external_fragmentation"]):
            outside = (free - model.largest[event]) / free if free else 0
            assert moment["external_fragmentation"] == outside
    shown, ranges = found["blocks"], found["ranges"]
    for event in found["instants"]["event"].tolist():
        now, held = (
            one[(one["first"] <= event) & (one["last"] > event)] for one in (shown, ranges)
        )
        told = dict(
            zip(now["address"], zip(now["first"], now["requested"], strict=True), strict=True)
        )
        assert told == model.alive[event]
        assert held["size"].sum() == model.levels[event].reserved
    if row["failures"]:
        (failure,) = found["failures"].to_dict("records")
        event = failure["event"]
        before = model.alive[event - 1] if event else {}
        assert trace.op[event] == ALLOC
        assert event not in [begun for begun, _ in model.alive[event].values()]
        assert failure["requested"] == trace.size[event]
        assert (failure["reserved"], failure["allocated"]) == (
            model.levels[event].reserved,
            model.levels[event].allocated,
        )
        assert set(shown[shown["pins"]]["first"]) <= {begun for begun, _ in before.values()}
        if "expandable" not in spec:
            segments = [
                (
                    s.address,
                    s.address + s.size,
                    [(b.address, b.address + b.size) for b in s.blocks if b.allocated],
                )
                for s in sorted(model.failed, key=lambda one: one.address)
            ]
            room = failure["capacity"] - failure["reserved"]
            wanted = in_the_way_of(segments, failure["requested"], room)
            assert (failure["pinned_bytes"], failure["place"]) == wanted
    live = np.cumsum([{ALLOC: 1, FREE: -1}.get(op, 0) for op in trace.op.tolist()])
    before_each = np.append(0, live)[:-1]
    assert blocks.live.tolist() == before_each[trace.op == ALLOC].tolist()
    assert blocks.live_at_free.tolist() == before_each[trace.op == FREE].tolist()


@st.composite
def areas(draw: st.DrawFn) -> list[Area]:
    """Up to four areas, some of which touch, with blocks and gaps."""
    found: list[Area] = []
    at = draw(st.integers(1, 9))
    for _ in range(draw(st.integers(1, 4))):
        begin, blocks = at, []
        for size, gap in draw(
            st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), max_size=4)
        ):
            blocks.append((at + gap, at + gap + size))
            at += gap + size
        at += draw(st.integers(0 if blocks else 1, 7))
        found.append((begin, at, blocks))
        at += draw(st.integers(0, 3))
    return found


@settings(max_examples=400)
@given(areas(), st.integers(1, 40), st.integers(0, 20))
def test_the_blocks_in_the_way_are_the_fewest_bytes(
    found: list[Area], requested: int, room: int
) -> None:
    every = [block for _, _, blocks in found for block in blocks]
    wanted = in_the_way_of(found, requested, room)
    begins, ends = (np.array([block[side] for block in every], np.int64) for side in (0, 1))
    pins, place = in_the_way([one[:2] for one in found], begins, ends, requested, room)
    assert (sum(every[n][1] - every[n][0] for n in pins), place) == wanted


@given(st.integers(1, 4000), st.integers(0, 3000), st.booleans())
def test_capacities_around_a_boundary_are_tried_at_even_distances(
    steps: int, load: int, long: bool
) -> None:
    """No stretch without a trial is longer than a sixteenth of the range; of a long trace, a
    quarter."""
    tried: set[int] = set()
    load = min(load, steps - 1)

    def enough(capacity: int) -> bool:
        tried.add(capacity // STEP)
        return capacity >= steps * STEP

    events = LONG + long
    found = boundary(enough, max_load=load * STEP + 1, peak_reserved=1, events=events)
    assert found.capacity == steps * STEP
    parts = 4 if long else 16
    for low, high in ((load, steps), (steps, 2 * steps)):
        inside = sorted({low, high, *(n for n in tried if low < n < high)})
        longest = max(np.diff(inside))
        assert longest <= (high - low) / parts + 1
        assert {high - 1 if high == steps else low + 1} <= tried | {high, low}
    after = [n for n in tried if n > steps]
    assert len(after) <= parts + 30


TEXTS = ("", "train.py:7 step", "train.py:7 f", "aten::mm", "a.py:1 g;train.py:7 f", "step")


def test_where_blocks_come_from_by_column() -> None:
    """A label that only repeats the line is left out; the pool is the kind where none is known."""
    pool = PrivatePool("graph")
    rows = [(ALLOC, n, 512) for n in range(4)]
    columns = {"label": [1, 3, 0, 0], "line": [2, 2, 2, 0], "pool": [0, 0, 1, 1]}
    kinds = {"uint32": ("label", "line"), "uint16": ("pool",)}
    arrays = {
        name: np.array(columns[name], kind) for kind, names in kinds.items() for name in names
    }
    trace = make(rows, labels=TEXTS, pools=(pool,), **arrays)
    sites = TraceBlocks.of("made", trace).details()["sites"]
    told = sites[["kind", "line", "operator"]].to_numpy().tolist()
    assert told == [
        ["", "train.py:7 f", ""],
        ["", "train.py:7 f", "aten::mm"],
        ["private pool graph", "train.py:7 f", ""],
        ["private pool graph", "", ""],
    ]


def test_a_run_without_result_says_why_and_where_it_was_made() -> None:
    row = experiment.without_result(
        make([(ALLOC, 0, 1)]), "bfc", "sim:1GiB", "is not there", workload="made"
    )
    known = {"workload": "made", "allocator": "bfc", "device": "sim:1GiB", "events": 1}
    assert row | known | {"unavailable": "is not there"} == row
    assert row["allocbench_version"]
    assert row["date"]
    assert row["peak_reserved"] is None
