# SPDX-License-Identifier: Apache-2.0
"""`caching` with settings that change on the way, against placements of PyTorch's allocator.

tests/data/caching/README.md says how they were made.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocbench import allocators
from allocbench.allocators import Allocator, Change, SpecError
from allocbench.workloads import ALLOC, FREE
from tests.traces import make

DATA = Path(__file__).parents[2] / "data" / "caching" / "changed_settings.json.gz"
CASES: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))
MIB = 1 << 20


def replayed(case: dict[str, Any]) -> tuple[list[tuple[int, ...]], Allocator]:
    """The segment, offset and size of each alloc, and the allocator."""
    events = case["events"]
    streams = np.array([row[3] for row in events], np.uint16)
    trace = make([row[:3] for row in events], stream=streams, labels=("step",))
    made = allocators.make(case["allocator"], allocators.SimulatedDevice(case["capacity"]))
    changes = [Change(*change) for change in case["changes"]]
    found = allocators.replay(trace, made, placements=True, keep=True, changes=changes)
    columns = (found.placements[name].tolist() for name in ("segment", "offset", "size"))
    return list(zip(*columns, strict=True)), made


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_block_is_where_pytorch_puts_it(number: int) -> None:
    case = CASES[number]
    placed, made = replayed(case)
    made.check()
    assert placed == [tuple(row[4:]) for row in case["events"] if row[0] == ALLOC]
    stats = made.stats()
    assert (stats.reserved, stats.retries) == (case["reserved"], case["retries"])
    # A request at which PyTorch itself breaks is no out-of-memory error there.
    assert stats.failures == case["failures"] + case["cuda_error"]


def test_the_cases_change_every_setting_in_every_version() -> None:
    versions = {case["torch"] for case in CASES}
    assert versions == {"2.5.1", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0"}
    for version in versions:
        mine = [case for case in CASES if case["torch"] == version]
        changes = [change for case in mine for change in case["changes"]]
        confs = {change[2] for change in changes}
        names = {item.split(":")[0] for conf in confs if conf for item in conf.split(",")}
        common = {"max_split_size_mb", "expandable_segments", "garbage_collection_threshold"}
        assert common | {"roundup_power2_divisions"} <= names
        assert ("max_non_split_rounding_mb" in names) == (version != "2.5.1")
        assert ("large_segment_size_mb" in names) == (int(version.split(".")[1]) >= 11)
        assert "" in confs
        assert any(change[1] for change in changes)
        assert any(change[3] is not None for change in changes)
        assert any(case["retries"] for case in mine)
        assert any(case["failures"] for case in mine)


def rounded(made: Allocator, size: int = 3 * MIB + 1) -> int:
    before = made.stats().allocated
    made.deallocate(address := made.allocate(size))
    after = made.allocate(size)
    taken = made.stats().allocated - before
    assert after == address
    made.deallocate(after)
    return taken


def new(spec: str, capacity: str = "1GiB") -> Allocator:
    return allocators.make(spec, allocators.SimulatedDevice(capacity))


def test_divisions_that_a_change_does_not_name_are_reset() -> None:
    made = new("caching:roundup_power2_divisions=2")
    assert rounded(made) == 4 * MIB
    made.change_settings("expandable_segments:False")
    assert rounded(made) == 3 * MIB + 512


def test_expandable_segments_that_a_change_does_not_name_stay() -> None:
    made = new("caching")
    made.change_settings("expandable_segments:True")
    made.change_settings("roundup_power2_divisions:2")
    made.allocate(1)
    assert made.device.stats().map_calls == 1
    made.change_settings("expandable_segments:False")
    made.deallocate(made.allocate(MIB))
    counts = made.device.stats()
    assert (counts.map_calls, counts.malloc_calls) == (1, 1)  # the mapped page serves nothing now
    made.trim()
    made.change_settings("expandable_segments:True")
    made.allocate(MIB)
    counts = made.device.stats()
    assert (counts.map_calls, counts.malloc_calls) == (1, 1)
    made.check()


@pytest.mark.parametrize(("version", "kept"), [("2.10", True), ("2.11", False)])
def test_the_rounding_of_unsplit_blocks_is_reset_from_2_11_on(version: str, kept: bool) -> None:
    made = new(f"caching:version={version},max_split_size_mb=40,max_non_split_rounding_mb=60")
    made.deallocate(made.allocate(90 * MIB))
    made.change_settings("max_split_size_mb:40")
    made.allocate(41 * MIB)
    assert made.device.stats().malloc_calls == (1 if kept else 2)


def test_a_memory_fraction_in_a_change_has_no_effect_but_the_call_has() -> None:
    made = new("caching")
    made.change_settings("per_process_memory_fraction:0.5")
    made.deallocate(made.allocate(900 * MIB))
    made.trim()
    made.change_memory_fraction(0.5)
    with pytest.raises(allocators.OutOfMemory):
        made.allocate(900 * MIB)
    made.change_memory_fraction(1)
    made.allocate(900 * MIB)
    with pytest.raises(SpecError, match=r"memory fraction of 1\.5"):
        made.change_memory_fraction(1.5)


def test_a_request_fails_where_pytorch_would_return_part_of_a_segment() -> None:
    made = new("caching", "64MiB")
    made.deallocate(made.allocate(40 * MIB))
    made.allocate(12 * MIB)  # splits the segment of 40 MiB
    made.change_settings("max_split_size_mb:24")
    with pytest.raises(allocators.OutOfMemory):
        made.allocate(30 * MIB)
    made.check()


def test_a_change_that_is_not_valid_changes_nothing() -> None:
    made = new("caching:large_segment_size_mb=40,roundup_power2_divisions=2")
    for conf, said in [
        ("max_split_size_mb:30", "at least 40"),  # the segment size is kept
        ("no_such:1", "no option 'no_such'"),
        ("backend:cudaMallocAsync", "backend"),
        ("expandable_segments", "key:value"),
    ]:
        with pytest.raises(SpecError, match=said):
            made.change_settings(conf)
    assert rounded(made) == 4 * MIB


def test_only_caching_changes_its_settings() -> None:
    trace = make([(ALLOC, 0, 100), (FREE, 0, 0)])
    for spec in ("bfc", "check:of=bfc"):
        with pytest.raises(SpecError, match="bfc has no settings that can change"):
            allocators.replay(trace, new(spec), changes=[Change(1, settings="")])
        with pytest.raises(SpecError, match="bfc has no settings that can change"):
            new(spec).change_memory_fraction(0.5)


@pytest.mark.parametrize("wrapper", ["check:of=caching", "per_stream:of=caching"])
def test_wrappers_pass_changes_on(wrapper: str) -> None:
    made = new(wrapper)
    made.change_settings("roundup_power2_divisions:2")
    assert rounded(made) == 4 * MIB
    made.deallocate(made.allocate(3 * MIB + 1, stream=1), stream=1)  # of an instance made later
    assert made.stats().peak_allocated == 4 * MIB
    made.change_memory_fraction(0.001)
    with pytest.raises(allocators.OutOfMemory):
        made.allocate(64 * MIB, stream=2)


def test_changes_are_made_before_their_events() -> None:
    events = [(ALLOC, 0, 3 * MIB + 1), (FREE, 0, 0)] * 3
    trace = make(events)
    changes = [
        Change(0, settings="roundup_power2_divisions:2"),
        Change(2, empty_cache=True),
        Change(4, settings=""),
    ]
    made = new("caching")
    found = allocators.replay(trace, made, placements=True, changes=changes)
    assert found.placements["size"].tolist() == [4 * MIB, 4 * MIB, 3 * MIB + 512]
    assert (found.device.malloc_calls, found.device.free_calls) == (2, 1)
    assert allocators.completes(trace, new("caching"), changes)
    assert not allocators.completes(trace, new("caching"), [Change(0, memory_fraction=0)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([Change(2)], "before event 2 of 2 events"),
        ([Change(-1)], "before event -1 of 2 events"),
        ([Change(1), Change(0)], "before event 0 after one before event 1"),
    ],
)
def test_changes_of_no_event_and_out_of_order_are_refused(changes: list[Change], said: str) -> None:
    trace = make([(ALLOC, 0, 100), (FREE, 0, 0)])
    with pytest.raises(ValueError, match=said):
        allocators.replay(trace, new("caching"), changes=changes)
