# SPDX-License-Identifier: Apache-2.0
"""Replay: every number matches a plain recomputation in Python."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from statistics import mean
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from allocbench import allocators
from allocbench.allocators import _core, replays
from allocbench.workloads import ALLOC, FREE, MARK, TRIM, Trace
from tests import random_events
from tests.allocators.test_conformance import in_steps
from tests.conftest import GIB, MIB, Case
from tests.traces import Event, held_at_start
from tests.traces import make as trace_of


class Moment(NamedTuple):
    event: int
    requested: int
    allocated: int
    reserved: int
    largest_free: int

    @property
    def free(self) -> int:
        return self.reserved - self.allocated


def now(allocator: allocators.Allocator, event: int) -> Moment:
    stats = allocator.stats()
    largest = allocator.largest_free() if allocator.info.keeps_free_blocks else 0
    return Moment(event, stats.requested, stats.allocated, stats.reserved, largest)


def played(trace: Trace, allocator: allocators.Allocator) -> Iterator[tuple[int, int, int | None]]:
    """The trace replayed from Python: after each event its number, its op and the block's address.

    The address is None for a request that failed.
    """
    address: dict[int, int | None] = {}
    for index, (op, block, size) in enumerate(rows(trace)):
        actual = None
        if op == ALLOC:
            with suppress(allocators.OutOfMemory):
                actual = allocator.allocate(size)
            address[block] = actual
        elif op == FREE:
            if (gone := address.pop(block)) is not None:
                allocator.deallocate(gone)
        elif op == MARK and block == trace.step_label:
            allocator.step()
        elif op == TRIM:
            allocator.trim()
        yield index, op, actual


def walk(
    trace: Trace, allocator: allocators.Allocator
) -> tuple[list[Moment], list[tuple[int, int, int]]]:
    """The moments after allocs and frees of a trace replayed from Python, and the placements."""
    moments: list[Moment] = []
    placements: list[tuple[int, int, int]] = []
    births: list[int] = []
    for index, op, actual in played(trace, allocator):
        if op == ALLOC:
            # Addresses only decrease: memory below all earlier memory is a new segment.
            for segment in reversed(allocator.snapshot()):
                if not births or segment.address < births[-1]:
                    births.append(segment.address)
            placements.append((-1, -1, 0) if actual is None else where(allocator, births, actual))
        if op in (ALLOC, FREE):
            moments.append(now(allocator, index))
    return moments, placements


def rows(trace: Trace) -> list[Event]:
    columns = (trace.op, trace.block, trace.size)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def where(allocator: allocators.Allocator, births: list[int], address: int) -> tuple[int, int, int]:
    (size,) = (
        block.size
        for segment in allocator.snapshot()
        for block in segment.blocks
        if block.address == address
    )
    ordinal = next(n for n, birth in enumerate(births) if birth <= address)
    return ordinal, address - births[ordinal], size


def program() -> Trace:
    """A trace with steps and trims that needs more than the device has."""
    steps = in_steps(3, steps=3)
    events: list[Event] = []
    for index, (op, block, size) in enumerate(rows(steps)):
        events.append((op, block, size))
        if index % 50 == 49:
            events.append((TRIM, 0, 0))
        if index % 70 == 69:
            events.append((MARK, 1, 0))
    return trace_of(events, labels=("step", "forward"))


@pytest.mark.parametrize("capacity", [GIB, 12 * MIB])
def test_every_number_matches_a_recomputation(case: Case, capacity: int) -> None:
    trace = program()
    allocator, by_hand = case.make(capacity).allocator, case.make(capacity).allocator
    result = allocators.replay(trace, allocator, samples=len(trace), placements=True)
    moments, placements = walk(trace, by_hand)

    assert result.max_load == trace.max_load
    peak = max(moments, key=lambda moment: moment.reserved)  # the first of equals
    assert Moment(*(getattr(result.peak, field) for field in Moment._fields)) == peak
    internal = [(m.allocated - m.requested) / m.allocated if m.allocated else 0 for m in moments]
    assert result.internal_fragmentation_mean == pytest.approx(mean(internal))
    kept = case.info.keeps_free_blocks
    external = [(m.free - m.largest_free) / m.free if kept and m.free else 0 for m in moments]
    assert result.external_fragmentation_mean == pytest.approx(mean(external))
    assert moments == [Moment(*row) for row in zip(*columns(result.timeline), strict=True)]
    if by_hand.device.stats().map_calls == 0:  # a segment mapped in parts has no start here
        assert placements == list(zip(*columns(result.placements)[1:4], strict=True))
    assert result.placements["block"].tolist() == [b for op, b, _ in rows(trace) if op == ALLOC]
    is_alloc = trace.op == ALLOC
    assert result.placements["requested"].tolist() == trace.size[is_alloc].tolist()
    steps = np.cumsum((trace.op == MARK) & (trace.block == trace.step_label))
    assert result.placements["step"].tolist() == steps[is_alloc].tolist()

    for name in ("requested", "allocated", "reserved"):
        assert getattr(result.stats, name) == getattr(by_hand.stats(), name)
        assert getattr(result.stats, f"peak_{name}") == getattr(by_hand.stats(), f"peak_{name}")
    for name in ("allocations", "frees", "failures", "retries"):
        assert getattr(result.stats, name) == getattr(by_hand.stats(), name)
    for name in ("malloc_calls", "free_calls", "refused_calls", "seconds"):
        assert getattr(result.device, name) == getattr(by_hand.device.stats(), name)
    for name in result.counters.keys() - {"search_steps"}:  # snapshots need search steps too
        assert result.counters[name] == by_hand.counters()[name]
    assert result.stats.failures == sum(size == 0 for _, _, size in placements)
    assert result.stats.failures > 0 or capacity == GIB


def columns(table: dict[str, Any]) -> list[list[int]]:
    return [column.tolist() for column in table.values()]


def test_a_failed_request_is_counted_and_the_replay_continues() -> None:
    events = [(ALLOC, 0, 600), (ALLOC, 1, 600), (ALLOC, 2, 400), (FREE, 1, 0), (FREE, 0, 0)]
    device = allocators.SimulatedDevice(1000)
    result = allocators.replay(trace_of(events), allocators.make("naive", device), placements=True)
    assert result.placements["segment"].tolist() == [0, -1, 1]
    assert result.placements["offset"].tolist() == [0, -1, 0]
    assert result.placements["size"].tolist() == [600, 0, 400]
    assert (result.stats.failures, result.stats.allocations) == (1, 2)
    assert (result.max_load, result.stats.peak_requested) == (1600, 1000)


def test_blocks_alive_at_the_end_are_freed_after_the_measurement(case: Case) -> None:
    allocator = case.make().allocator
    result = allocators.replay(trace_of([(ALLOC, 0, 5000), (ALLOC, 1, 300)]), allocator)
    assert (result.stats.frees, result.stats.requested) == (0, 5300)
    assert result.timeline["requested"].tolist() == [5000, 5300]
    assert (allocator.stats().frees, allocator.stats().requested) == (2, 0)


def test_placements_can_be_received_in_batches() -> None:
    trace = trace_of(
        [
            event
            for index in range(100_000)
            for event in ((ALLOC, index, 100 + index), (FREE, index, 0))
        ]
    )
    parts: list[dict[str, Any]] = []
    bfc, again = Case("bfc").make(GIB).allocator, Case("bfc").make(GIB).allocator
    assert allocators.replay(trace, bfc, placements=parts.append).placements == {}
    assert len(parts) > 1
    for name, whole in allocators.replay(trace, again, placements=True).placements.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole)


def test_a_step_is_a_mark_with_the_steps_label() -> None:
    events = [(MARK, 0, 0), (ALLOC, 0, 100), (FREE, 0, 0)] * 3
    for labels, planned in ((("step",), 2), (("forward",), 0), (("forward", "step"), 0)):
        arena = allocators.make("arena", allocators.SimulatedDevice("1GiB"))
        result = allocators.replay(trace_of(events, labels=labels), arena)
        assert result.counters["planned_requests"] == planned


def test_a_trim_in_the_trace_returns_segments() -> None:
    events = [(ALLOC, 0, 100), (FREE, 0, 0), (TRIM, 0, 0), (ALLOC, 1, 100)]
    allocator = allocators.make("bfc", allocators.SimulatedDevice("1GiB"))
    result = allocators.replay(trace_of(events), allocator, placements=True)
    assert result.placements["segment"].tolist() == [0, 1]
    assert result.device.free_calls == 1


def test_a_layout_is_taken_over_segment_by_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "HeldSegment", lambda *given: given)
    _, layout = held_at_start()
    columns = {"address": [1, 2], "size": [3, 4], "stream": [5, 6], "small": [True, False]}
    columns |= {"reservation": [7, 8], "rank": [9, 10], "pool": [11, 12]}
    values = {name: np.array(column) for name, column in columns.items()}
    held = SimpleNamespace(
        **values,
        of_bfc=False,
        segment_of_block=np.array([1, 0, 1]),
        block_address=np.array([20, 30, 40]),
        block_size=np.array([2, 3, 4]),
    )
    found: Any = replays._held(held, np.array([1, 2, 3, 99], np.uint64))  # type: ignore[arg-type]
    assert {*values} | {"of_bfc", "block_address", "block_size"} == {*vars(layout)}
    assert found == [
        (1, 3, 5, True, 7, 9, False, 11, [(30, 3, 2)]),
        (2, 4, 6, False, 8, 10, False, 12, [(20, 2, 1), (40, 4, 3)]),
    ]


def test_a_second_replay_continues_where_the_first_ended() -> None:
    allocator = allocators.make("bfc", allocators.SimulatedDevice("1GiB"))
    trace = in_steps(1)
    allocators.replay(trace, allocator)
    calls = allocator.device.stats().malloc_calls
    again = allocators.replay(trace, allocator, samples=len(trace))
    assert allocator.device.stats().malloc_calls == calls
    assert set(again.timeline["reserved"].tolist()) == {allocator.stats().reserved}
    assert again.peak.event == 1  # a mark comes first


@pytest.mark.parametrize("samples", [1, 7, 100, 10**6])
def test_the_timeline_has_about_as_many_samples_as_requested(samples: int) -> None:
    events = [(ALLOC, block, 1000) for block in range(1000)]
    trace = trace_of(events + [(FREE, block, 0) for _, block, _ in events])
    allocator = allocators.make("bfc", allocators.SimulatedDevice("1GiB"))
    seen = allocators.replay(trace, allocator, samples=samples).timeline["event"].tolist()
    assert (seen[0], seen[-1]) == (0, len(trace) - 1)
    assert seen == sorted(set(seen))
    assert min(samples, len(trace)) <= len(seen) <= 2 * samples


def test_an_empty_trace_has_an_empty_result() -> None:
    allocator = allocators.make("bfc", allocators.SimulatedDevice("1GiB"))
    result = allocators.replay(trace_of([]), allocator, placements=True)
    assert (result.max_load, result.peak.reserved, result.stats.allocations) == (0, 0, 0)
    assert result.internal_fragmentation_mean == result.external_fragmentation_mean == 0
    assert [len(column) for column in columns(result.timeline)] == [0] * 5
    assert [len(column) for column in columns(result.placements)] == [0] * 6
    assert allocators.time_pass(trace_of([]), allocator) == 0
    assert [len(one) for one in allocators.time_each(trace_of([]), allocator)[:2]] == [0, 0]
    assert allocators.completes(trace_of([]), allocator)


Replay = Callable[[Any, allocators.Allocator], object]
EVERY_REPLAY: list[Replay] = [
    allocators.replay,
    allocators.time_pass,
    allocators.time_each,
    allocators.completes,
]


@pytest.mark.parametrize("replay", EVERY_REPLAY)
@pytest.mark.parametrize(
    ("events", "event", "rule"),
    [
        ([(ALLOC, 0, 1), (10, 0, 0)], 1, "unknown op 10"),
        ([(FREE, 9, 0), (10, 0, 0)], 0, "block 9 is out of range"),
        ([(ALLOC, 0, 1), (ALLOC, 2, 1)], 1, "block 2 is out of range"),
        ([(FREE, 9, 0)], 0, "block 9 is out of range"),
        ([(ALLOC, 0, 1), (ALLOC, 1, 5), (ALLOC, 1, 5)], 2, "block 1 is alive"),
        ([(ALLOC, 0, 1), (FREE, 0, 0), (FREE, 0, 0)], 2, "block 0"),
        ([(ALLOC, 0, 1), (FREE, 1, 0)], 1, "block 1"),
    ],
)
def test_invalid_traces_are_refused_with_the_event(
    replay: Replay, events: list[Event], event: int, rule: str
) -> None:
    allocator = allocators.make("bfc", allocators.SimulatedDevice("1GiB"))
    with pytest.raises(ValueError, match=f"not a valid trace: event {event}: {rule}"):
        replay(trace_of(events), allocator)
    assert allocator.stats().allocated == 0
    allocator.check()


@pytest.mark.parametrize("replay", EVERY_REPLAY)
def test_sizes_that_add_up_to_2_to_the_63_are_refused(replay: Replay) -> None:
    allocator = allocators.make("naive", allocators.SimulatedDevice("1GiB"))
    large = [(ALLOC, 0, 2**62), (ALLOC, 1, 2**62 - 2**31), (ALLOC, 2, 2**31)]
    with pytest.raises(ValueError, match="its allocs add up to 2\\^63 bytes or more"):
        replay(trace_of(large), allocator)
    large[-1] = (ALLOC, 2, 2**31 - 1)
    replay(trace_of(large), allocator)


@pytest.mark.parametrize("replay", EVERY_REPLAY)
def test_only_allocs_and_frees_have_block_ids_and_only_allocs_have_sizes(replay: Replay) -> None:
    allocator = allocators.make("naive", allocators.SimulatedDevice("1GiB"))
    replay(trace_of([(ALLOC, 0, 1), (MARK, 2**32 - 1, 2**64 - 1), (FREE, 0, 2**64 - 1)]), allocator)
    assert allocator.stats().failures == 0


@pytest.mark.parametrize("replay", EVERY_REPLAY)
def test_arrays_of_different_lengths_are_refused(replay: Replay) -> None:
    trace = trace_of([(ALLOC, 0, 1), (FREE, 0, 0)])
    allocator = allocators.make("bfc", allocators.SimulatedDevice("1GiB"))
    for name in ("op", "block", "size", "stream"):
        changed: dict[str, Any] = {name: getattr(trace, name)[:1].copy()}
        short = dataclasses.replace(trace, **changed)
        with pytest.raises(ValueError, match="differ in length"):
            replay(short, allocator)


def test_arrays_of_the_wrong_type_are_refused() -> None:
    trace = trace_of([(ALLOC, 0, 1)])
    changed: dict[str, Any] = {"size": trace.size.astype(np.int32)}
    allocator = allocators.make("bfc", allocators.SimulatedDevice("1GiB"))
    with pytest.raises(TypeError):
        allocators.replay(dataclasses.replace(trace, **changed), allocator)


@pytest.mark.usefixtures("measured_times")
def test_a_pass_is_timed_per_event(case: Case) -> None:
    allocator, trace = case.make(GIB).allocator, in_steps(2)
    begin = time.perf_counter()
    seconds = allocators.time_pass(trace, allocator)
    assert 0 < seconds * len(trace) <= time.perf_counter() - begin
    assert allocator.stats().allocations + allocator.stats().failures == trace.allocs
    assert allocator.stats().allocated == 0


@pytest.mark.usefixtures("measured_times")
def test_each_alloc_and_each_free_is_timed(case: Case) -> None:
    allocator, trace = case.make(GIB).allocator, in_steps(2)
    begin = time.perf_counter()
    alloc, free, timer = allocators.time_each(trace, allocator)
    elapsed = time.perf_counter() - begin
    assert alloc.dtype == free.dtype == np.float32
    assert alloc.shape == (trace.allocs,)
    assert free.shape == (np.count_nonzero(trace.op == FREE),)
    assert (alloc >= 0).all()
    assert (free >= 0).all()
    assert 0 < alloc.sum(dtype=float) + free.sum(dtype=float) <= elapsed
    assert 0 < timer <= elapsed


@pytest.mark.parametrize("validated", [True, False])
def test_a_trace_cannot_change_while_it_is_replayed(validated: bool) -> None:
    """Block numbers are indices in C++, and an index out of range ended the process."""
    trace = random_events.events(300)
    if not validated:
        trace = Trace(trace.op.copy(), trace.block.copy(), trace.size.copy(), trace.stream.copy())
    allocator = allocators.make("check:of=tlsf", allocators.SimulatedDevice("1GiB"))

    def write(*_: object) -> None:
        trace.block[:] = 2**32 - 1

    if validated:
        with pytest.raises(ValueError, match="read-only"):
            allocators.time_calls(trace, allocator, write)
    else:
        allocators.time_calls(trace, allocator, write)
    assert allocator.stats().requested == 0
    allocator.check()


def test_completes_is_true_if_every_request_succeeds() -> None:
    trace = in_steps(5)
    needed = trace.max_load
    for capacity, completes in ((needed, True), (needed - 1, False)):
        allocator = allocators.make("naive", allocators.SimulatedDevice(capacity))
        assert allocators.completes(trace, allocator) is completes
        assert allocator.stats().failures == (not completes)
        assert allocator.stats().allocated == 0


def test_a_trial_stops_at_the_first_request_that_fails() -> None:
    trace = trace_of([(ALLOC, 0, 6), (ALLOC, 1, 5), (FREE, 1, 0), (ALLOC, 2, 4), (ALLOC, 3, 1)])
    allocator = allocators.make("naive", allocators.SimulatedDevice(10))
    assert allocators.failing_event(trace, allocator) == 1
    assert (allocator.stats().allocations, allocator.stats().allocated) == (1, 0)
    large = allocators.make("naive", allocators.SimulatedDevice(11))
    assert allocators.failing_event(trace, large) is None


def test_a_trial_frees_the_blocks_of_a_layout_that_it_adopted() -> None:
    held, layout = held_at_start()
    for rest, completes in (([], True), ([(FREE, 0, 0)], True), ([(ALLOC, 2, GIB)], False)):
        allocator = allocators.make("caching", allocators.SimulatedDevice("1GiB"))
        assert allocators.completes(trace_of(held + rest, layout=layout), allocator) is completes
        assert allocator.stats().allocated == 0
        assert allocator.stats().reserved == 20 * MIB
