# SPDX-License-Identifier: Apache-2.0
"""The detail of a replay: no peak is lost; calls and free blocks match a manual replay."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from allocbench import allocators
from allocbench.allocators.replays import CALL_KINDS
from allocbench.workloads import ALLOC, FREE, Trace
from tests.allocators.test_replay import played, program
from tests.conftest import GIB, MIB, Case
from tests.traces import make as trace_of

KINDS = ("requested", "allocated", "reserved")


def detail(case: Case, trace: Trace, samples: int, capacity: int = GIB) -> Any:
    actual = allocators.replay(trace, case.make(capacity).allocator, samples=samples, detail=True)
    assert actual.detail is not None
    return actual, actual.detail


def levels(columns: Any) -> list[tuple[int, ...]]:
    return list(zip(*(columns[name].tolist() for name in ("event", *KINDS)), strict=True))


def free_classes(allocator: allocators.Allocator) -> dict[int, tuple[int, int]]:
    """Numbers and bytes of free blocks by the power of two of their size."""
    blocks: Counter[int] = Counter()
    bytes_: Counter[int] = Counter()
    for segment in allocator.snapshot():
        for block in segment.blocks:
            if not block.allocated:
                blocks[block.size.bit_length() - 1] += 1
                bytes_[block.size.bit_length() - 1] += block.size
    return {power: (blocks[power], bytes_[power]) for power in blocks}


@pytest.mark.parametrize("samples", [1, 5, 40])
def test_every_peak_and_every_low_is_in_the_envelope(case: Case, samples: int) -> None:
    trace = program()
    every, full = detail(case, trace, len(trace))
    assert levels(full["envelope"]) == levels(every.timeline)
    thin = detail(case, trace, samples)[1]["envelope"]
    assert set(levels(thin)) <= set(levels(full["envelope"]))
    assert len(thin["event"]) <= 2 * len(KINDS) * (samples + 1)
    interval = max(1, len(trace) // samples)
    whole = full["envelope"]
    for name in KINDS:
        for start in range(0, len(trace), interval):
            inside = [
                table[name][(table["event"] >= start) & (table["event"] < start + interval)]
                for table in (whole, thin)
            ]
            if len(inside[0]):
                assert inside[0].min() == inside[1].min()
                assert inside[0].max() == inside[1].max()


@pytest.mark.parametrize("capacity", [GIB, 12 * MIB])
def test_device_calls_add_up_to_the_counts_and_to_the_reserved_bytes(
    case: Case, capacity: int
) -> None:
    trace = program()
    result, actual = detail(case, trace, len(trace), capacity)
    calls = actual["device_calls"]
    kind = np.array(CALL_KINDS)[calls["kind"]]
    for name in CALL_KINDS:
        assert np.count_nonzero(kind == name) == getattr(result.device, f"{name}_calls")
    assert calls["refused"].sum() == result.device.refused_calls
    assert calls["seconds"].sum() == pytest.approx(result.device.seconds)
    assert (np.diff(calls["event"].astype(np.int64)) >= 0).all()
    assert (calls["address"][calls["refused"] == 1] == 0).all()
    change = np.where(np.isin(kind, ["malloc", "map"]), 1, -1) * calls["size"].astype(np.int64)
    change[calls["refused"] == 1] = 0
    held = np.cumsum(change)
    for event, *_, reserved in levels(actual["envelope"]):
        before = int(np.searchsorted(calls["event"], event, side="right"))
        assert reserved == (held[before - 1] if before else 0)


def test_free_blocks_are_those_of_a_snapshot(case: Case) -> None:
    trace = program()
    actual = detail(case, trace, 80)[1]["free_blocks"]
    seen: dict[int, dict[int, tuple[int, int]]] = {}
    columns = (actual[name].tolist() for name in ("event", "size_class", "blocks", "bytes"))
    for event, size_class, blocks, size in zip(*columns, strict=True):
        seen.setdefault(event, {})[size_class] = (blocks, size)
    last = len(trace) - 1
    by_hand = case.make(GIB).allocator
    expected = {
        event: free_classes(by_hand)
        for event, _, _ in played(trace, by_hand)
        if event in {*seen, last}
    }
    assert {event: classes for event, classes in expected.items() if classes} == seen


def test_placements_have_the_programs_addresses(case: Case) -> None:
    trace = trace_of([(ALLOC, 0, 5000), (ALLOC, 1, 700), (FREE, 0, 0), (ALLOC, 2, 3 << 30)])
    actual = detail(case, trace, 1)[1]["placements"]
    by_hand = case.make(GIB).allocator
    addresses = [by_hand.allocate(5000), by_hand.allocate(700), 0]
    assert actual["address"].tolist() == addresses
    assert actual["size"][-1] == 0
    assert (actual["size"][:2] >= [5000, 700]).all()


def test_there_is_no_detail_unless_requested() -> None:
    allocator = Case("bfc").make(GIB).allocator
    trace = trace_of([(ALLOC, 0, 5000), (FREE, 0, 0)])
    assert allocators.replay(trace, allocator).detail is None
    again = allocators.replay(trace, allocator, detail=True).detail
    assert again is not None
    assert again["device_calls"]["event"].tolist() == []  # everything needed is already held
