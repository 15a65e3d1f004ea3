# SPDX-License-Identifier: Apache-2.0
"""caching: each rule of PyTorch's allocator on a case computed by hand."""

import random

import pytest

from allocbench import allocators
from allocbench.allocators.replays import CALL_KINDS
from allocbench.workloads import ALLOC, FREE
from tests.allocators.strategies.seen import blocks, fails, granted, segments
from tests.conftest import GIB, MIB, Make
from tests.traces import make as trace_of


@pytest.mark.parametrize(
    ("size", "rounded", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB, 10 * MIB),
        (19 * MIB + 1, 20 * MIB, 20 * MIB),
        (33 * MIB, 34 * MIB, 34 * MIB),
    ],
)
def test_a_size_says_how_much_is_granted_and_from_which_segment(
    make: Make, size: int, rounded: int, segment: int
) -> None:
    allocator = make("caching")
    assert granted(allocator, allocator.allocate(size)) == rounded
    assert segments(allocator) == [segment]


def test_a_block_freed_on_another_stream_waits_for_the_next_step(make: Make) -> None:
    allocator = make("caching")
    kept, used = allocator.allocate(1024, stream=1), allocator.allocate(1024, stream=1)
    allocator.deallocate(kept, stream=1)
    allocator.deallocate(used, stream=2)
    assert allocator.stats().allocated == 0
    assert allocator.largest_free() == 2 * MIB - 2048
    allocator.check()
    other = allocator.allocate(2048, stream=1)
    assert other == used + 1024
    allocator.step()
    assert allocator.allocate(2048, stream=1) == kept
    allocator.deallocate(other, stream=2)
    allocator.deallocate(kept, stream=2)
    allocator.trim()
    assert segments(allocator) == []


def test_a_full_device_waits_for_all_streams(make: Make) -> None:
    allocator = make("caching", 20 * MIB)
    allocator.deallocate(allocator.allocate(15 * MIB, stream=1), stream=2)
    assert allocator.allocate(15 * MIB, stream=1)
    assert allocator.stats().retries == 1


def test_a_trim_gives_whole_free_segments_back(make: Make) -> None:
    allocator = make("caching")
    held = allocator.allocate(5 * MIB)
    allocator.deallocate(allocator.allocate(5 * MIB))
    allocator.deallocate(allocator.allocate(30 * MIB))
    allocator.trim()
    assert segments(allocator) == [20 * MIB]
    allocator.deallocate(held)


class TestMaxSplitSize:
    def test_an_oversize_block_is_not_for_a_smaller_request(self, make: Make) -> None:
        allocator = make("caching:max_split_size_mb=32")
        allocator.deallocate(allocator.allocate(32 * MIB))
        allocator.allocate(30 * MIB)
        assert segments(allocator) == [32 * MIB, 30 * MIB]

    def test_an_oversize_request_takes_a_block_less_than_20_mib_larger_whole(
        self, make: Make
    ) -> None:
        for size, taken in ((52 * MIB, False), (50 * MIB, True)):
            allocator = make("caching:max_split_size_mb=32")
            allocator.deallocate(allocator.allocate(size))
            block = allocator.allocate(32 * MIB)
            assert (granted(allocator, block) == size) is taken
            assert len(segments(allocator)) == (1 if taken else 2)

    def test_max_non_split_rounding_mb_says_how_much_larger(self, make: Make) -> None:
        allocator = make("caching:max_split_size_mb=32,max_non_split_rounding_mb=30")
        allocator.deallocate(allocator.allocate(60 * MIB))
        assert granted(allocator, allocator.allocate(32 * MIB)) == 60 * MIB

    def test_a_full_device_gets_an_oversize_block_back_before_all_others(self, make: Make) -> None:
        allocator = make("caching:max_split_size_mb=32", 100 * MIB)
        allocator.deallocate(allocator.allocate(10 * MIB))
        kept = [allocator.allocate(size * MIB) for size in (32, 40)]
        for block in kept:
            allocator.deallocate(block)
        allocator.allocate(31 * MIB)
        assert segments(allocator) == [10 * MIB, 40 * MIB, 32 * MIB]
        assert allocator.stats().retries == 0


@pytest.mark.parametrize(
    ("version", "sizes"),
    [
        # 3 MiB: 2 divisions from 2 MiB; 5 MiB: none named; 9 MiB: the last interval named
        ("2.13", {MIB // 2 + 1: 3 * MIB // 4, 5 * MIB + 1: 5 * MIB + 512, 9 * MIB: 9 * MIB}),
        ("2.10", {MIB // 2 + 1: 3 * MIB // 4, 5 * MIB + 1: 5 * MIB + 512, 9 * MIB: 9 * MIB}),
        ("2.9", {MIB // 2 + 1: 3 * MIB // 4, 5 * MIB + 1: 5 * MIB + 512, 9 * MIB: 12 * MIB}),
    ],
)
def test_divisions_may_differ_by_interval(make: Make, version: str, sizes: dict[int, int]) -> None:
    allocator = make(f"caching:version={version},roundup_power2_divisions=[2:2,8:8,>:2]")
    for size, rounded in (sizes | {17 * MIB: 24 * MIB}).items():
        assert granted(allocator, allocator.allocate(size)) == rounded


def test_requests_below_10_mib_share_segments_of_large_segment_size_mb(make: Make) -> None:
    allocator = make("caching:large_segment_size_mb=40")
    for _ in range(4):
        allocator.allocate(9 * MIB)
    assert segments(allocator) == [40 * MIB]


def test_a_fraction_of_one_is_a_limit_only_up_to_2_9(make: Make) -> None:
    for version, calls in (("2.9", 0), ("2.10", 2), ("2.11", 2), ("2.13", 2)):
        allocator = make(f"caching:version={version},per_process_memory_fraction=1", 10 * MIB)
        assert fails(allocator, 12 * MIB)
        assert allocator.device.stats().refused_calls == calls


class TestExpandableSegments:
    def test_a_segment_grows_by_the_pages_it_needs(self, make: Make) -> None:
        allocator = make("caching:expandable_segments=true")
        first = allocator.allocate(5 * MIB)
        assert blocks(allocator) == [[5 * MIB, -15 * MIB]]
        assert allocator.allocate(30 * MIB) == first + 5 * MIB
        assert blocks(allocator) == [[5 * MIB, 30 * MIB, -5 * MIB]]
        small = allocator.allocate(1000)
        assert small > first + GIB  # of another segment, as long as the device and an eighth
        calls = allocator.device.stats()
        assert (calls.malloc_calls, calls.map_calls, calls.unmap_calls) == (0, 3, 0)
        assert allocator.stats().reserved == allocator.device.reserved == 42 * MIB

    def test_a_trim_unmaps_whole_free_pages(self, make: Make) -> None:
        allocator = make("caching:expandable_segments=true")
        held = [allocator.allocate(size * MIB) for size in (25, 50, 5)]
        allocator.deallocate(held[1])
        allocator.trim()
        assert blocks(allocator) == [[25 * MIB, -15 * MIB], [-15 * MIB, 5 * MIB]]
        assert allocator.allocate(50 * MIB) == held[1]
        assert blocks(allocator) == [[25 * MIB, 50 * MIB, 5 * MIB]]
        for block in held:
            allocator.deallocate(block)
        allocator.trim()
        assert segments(allocator) == []
        calls = allocator.device.stats()
        assert calls.map_calls == calls.unmap_calls == 5

    def test_pages_are_mapped_all_or_none(self, make: Make) -> None:
        allocator = make("caching:expandable_segments=true", 70 * MIB)
        assert fails(allocator, 70 * MIB)
        assert allocator.stats().peak_reserved == 0
        calls = allocator.device.stats()
        assert (calls.map_calls, calls.refused_calls, calls.unmap_calls) == (8, 2, 6)

    @pytest.mark.parametrize(
        ("reserve", "addresses"),
        [
            ("0.5", 200 * MIB),
            (".25", 100 * MIB),
            ("1e-1", 40 * MIB),
            ("0.01", 20 * MIB),  # a page
            ("0.2G", 220 * MIB),  # 204.8 MiB in pages of 20 MiB
            ("0.2g", 220 * MIB),
            ("1.1", 440 * MIB),
            ("7", 460 * MIB),  # at most 9/8 of the capacity
            ("1e20G", 460 * MIB),
        ],
    )
    def test_no_request_exceeds_the_reserve(self, make: Make, reserve: str, addresses: int) -> None:
        options = f"expandable_segments=true,expandable_segments_reserve={reserve}"
        allocator = make(f"caching:{options}", 400 * MIB)
        cached = allocator.allocate(15 * MIB)
        allocator.deallocate(cached)
        assert fails(allocator, addresses + 1)
        assert (allocator.stats().retries, segments(allocator)) == (1, [])
        if addresses <= 400 * MIB:
            assert allocator.allocate(addresses)
            assert blocks(allocator) == [[addresses]]

    def test_a_full_reserve_is_followed_by_another(self, make: Make) -> None:
        options = "expandable_segments=true,expandable_segments_reserve=0.1"
        allocator = make(f"caching:{options}", 400 * MIB)
        first, second = allocator.allocate(25 * MIB), allocator.allocate(16 * MIB)
        assert second >= first + 40 * MIB
        assert blocks(allocator) == [[25 * MIB, -15 * MIB], [16 * MIB, -4 * MIB]]

    def test_a_program_cannot_take_a_reserve_back(self, make: Make) -> None:
        conf = "expandable_segments:True,expandable_segments_reserve:"
        allocator = make(f"caching:conf={conf}0.5", 400 * MIB)
        for later in ("", f"{conf}lots", f"{conf}G", f"{conf}0", f"{conf}-1", f"{conf}inf"):
            allocator.change_settings(later)
            assert fails(allocator, 201 * MIB)
        allocator.change_settings("expandable_segments_reserve:0.75,expandable_segments_reserve:x")
        assert allocator.allocate(300 * MIB)

    def test_a_reserve_that_pytorch_ignores_changes_nothing(self, make: Make) -> None:
        conf = "expandable_segments:True,expandable_segments_reserve:12X"
        allocator = make(
            f"caching:conf={conf},expandable_segments_reserve_by_class:[a:0.1]", 400 * MIB
        )
        assert allocator.allocate(400 * MIB)

    def test_a_request_takes_what_is_free_before_unmapped_addresses(self, make: Make) -> None:
        allocator = make("caching:expandable_segments=true", 70 * MIB)
        assert allocator.allocate(60 * MIB)
        assert allocator.device.stats().map_calls == 3


def test_throwing_early_is_kept_when_settings_change(make: Make) -> None:
    allocator = make("caching:conf=throw_on_cudamalloc_oom:True", capacity="64MiB")
    allocator.change_settings("max_split_size_mb:40")
    allocator.deallocate(allocator.allocate(30 * MIB))
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(50 * MIB)


def test_a_conf_is_accepted_as_it_stands(make: Make) -> None:
    conf = (
        "backend:native, max_split_size_mb:32,pinned_use_background_threads:True,"
        "roundup_power2_divisions:[4:0,8:2,>:4],max_split_size_mb:40,"
    )
    allocator = make(f"caching:conf={conf}version=2.12")
    allocator.deallocate(allocator.allocate(38 * MIB))
    assert granted(allocator, allocator.allocate(9 * MIB)) == 12 * MIB
    assert segments(allocator) == [40 * MIB, 12 * MIB]


def test_garbage_collection_returns_segments_in_the_order_of_their_sizes() -> None:
    sizes = dict(enumerate([10, 12, 30, 30, 40]))
    events = [(ALLOC, block, sizes[block] * MIB) for block in (2, 0, 1)]
    events += [(FREE, 0, 0), (FREE, 1, 0), (ALLOC, 3, sizes[3] * MIB), (FREE, 2, 0)]
    trace = trace_of([*events, (ALLOC, 4, sizes[4] * MIB)])
    made = allocators.make(
        "caching:garbage_collection_threshold=0.8,per_process_memory_fraction=0.5",
        allocators.SimulatedDevice("200MiB"),
    )
    found = allocators.replay(trace, made, detail=True, keep=True)
    assert found.detail is not None
    device = found.detail["device_calls"]
    freed = device["size"][device["kind"] == CALL_KINDS.index("free")]
    assert freed.tolist() == [10 * MIB, 12 * MIB]


@pytest.mark.parametrize("addresses", ["up", "down"])
def test_among_free_segments_of_one_size_the_oldest_is_used_first(addresses: str) -> None:
    device = allocators.SimulatedDevice("80GiB", addresses=addresses)
    allocator = allocators.make("caching", device)
    first = [allocator.allocate(12 * MIB) for _ in range(300)]
    for address in random.Random(1).sample(first, len(first)):
        allocator.deallocate(address)
    assert [allocator.allocate(12 * MIB) for _ in first] == first
