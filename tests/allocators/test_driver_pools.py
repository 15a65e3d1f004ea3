# SPDX-License-Identifier: Apache-2.0
"""The pools of a simulated device, and its pages, against those of an H100 and by hand."""

import functools
import json
import random
from typing import Any

import pytest

from allocbench import allocators
from allocbench.replays.runner import LargeRunner, counted, fresh
from allocbench.workloads import ALLOC, FREE, catalog
from tests.conftest import GIB, MIB
from tests.null_gpu import ROOT
from tests.oracle import Watched
from tests.traces import make

_GPU = ROOT / "benchmarks/results/gpu"
CALLS = _GPU / "nvidia-h100-80gb-hbm3-9cf8e0bc/driver/calls.json"
REPLAYS = _GPU / "nvidia-h100-80gb-hbm3-5fa02ba3/replays/replays.json"
PAGE = 32 * MIB


def pool(device: str | allocators.Device = "sim:1GiB") -> allocators.Allocator:
    opened = allocators.make_device(device) if isinstance(device, str) else device
    return allocators.make("cuda_async", opened)


@functools.cache
def lines(scenario: str) -> list[dict[str, Any]]:
    content = json.loads(CALLS.read_text())
    found: list[dict[str, Any]] = content["measured"]["scenarios"][scenario]["lines"]
    return found


@functools.cache
def replays() -> dict[str, dict[str, Any]]:
    """What the H100 counted in the replays of `cuda_async`, by workload."""
    content = json.loads(REPLAYS.read_text())
    rows = content["measured"]["rows"]
    return {row["workload"]: row["gpu"] for row in rows if row["allocator"] == "cuda_async"}


# -- against the H100


def test_blocks_of_each_size_reserve_what_they_reserved_on_an_h100() -> None:
    measured = {
        int(line["label"].removesuffix(" bytes")): line["reserved_used"]
        for line in lines("pools.bytes_by_size")
        if "reserved_used" in line
    }
    assert len(measured) > 10
    for size, growth in measured.items():
        allocator, found = pool("sim:64GiB"), []
        for _ in growth:
            allocator.allocate(size)
            found.append([allocator.stats().reserved, allocator.stats().requested])
        assert found == growth, size


def test_random_calls_reserve_nearly_what_they_reserved_on_an_h100() -> None:
    peaks = {}
    for line in lines("pools.random_calls"):
        allocator, blocks = pool("sim:64GiB"), dict[int, int]()
        for number, (is_free, value, _, _) in enumerate(line["raw"]):
            if is_free:
                allocator.deallocate(blocks.pop(value))
            else:
                blocks[number] = allocator.allocate(value)
        peaks[line["label"]] = (allocator.stats().peak_reserved // MIB, line["peak"])
    assert peaks == {
        "small blocks": (64, 64),
        "middle blocks": (2848, 2848),
        "large blocks": (13152, 13152),
        "all blocks": (7104, 7040),
    }


def test_replays_reserve_what_an_h100_reserved_within_what_the_documents_say() -> None:
    off = {}
    for workload, real in replays().items():
        row = counted(catalog.load(workload), fresh("cuda_async", "sim:64GiB"))
        assert (row["failures"], row["device_calls"]) == (
            real["failures"],
            real["malloc_calls"] + real["free_calls"],
        )
        assert row["device_seconds_low"] < real["device_seconds"] < row["device_seconds_high"]
        off[workload] = (row["peak_reserved"] - real["peak_reserved"]) // PAGE
    assert off == {
        "bert-serve": 0,
        "diffusion-sample": -3,
        "diffusion-train": -4,
        "dlrm-train": 0,
        "gpt2-train": -6,
        "llama3-8b-lora": -1,
        "llm-continuous": -3,
        "llm-decode": -24,
        "llm-paged": -2,
        "moe-train": 3,
        "resnet50-train": -1,
        "vit-serve": 4,
        "whisper-beam": 1,
    }


# -- by hand


def test_a_pool_takes_pages_and_keeps_them_until_a_trim() -> None:
    allocator = pool()
    first, second = allocator.allocate(20 * MIB), allocator.allocate(20 * MIB)
    assert second == first + 20 * MIB
    assert allocator.stats().reserved == allocator.device.reserved == 2 * PAGE
    allocator.deallocate(first)
    assert allocator.allocate(5 * MIB) == first  # the smallest range of its stream that fits
    allocator.trim()
    assert allocator.stats().reserved == 2 * PAGE  # each page has a block in it
    allocator.deallocate(second)
    allocator.trim()
    assert allocator.stats().reserved == allocator.device.reserved == PAGE
    assert allocator.stats().peak_reserved == 2 * PAGE
    allocator.check()


def test_memory_of_free_pages_moves_to_new_addresses() -> None:
    """No free range has 64 MiB, but two pages are free: they move, and the device gives nothing."""
    allocator = pool()
    blocks = [allocator.allocate(PAGE) for _ in range(4)]
    for block in blocks[::2]:
        allocator.deallocate(block)
    assert allocator.allocate(2 * PAGE) == blocks[3] + PAGE
    assert allocator.stats().reserved == 4 * PAGE


def test_another_stream_gets_what_was_freed_because_all_work_has_ended() -> None:
    allocator = pool()
    block = allocator.allocate(PAGE, 1)
    allocator.deallocate(block, 1)
    assert allocator.allocate(PAGE, 2) == block
    assert allocator.stats().reserved == PAGE


def test_a_pool_is_full_when_no_page_is_left() -> None:
    allocator = pool("sim:100MiB")  # three pages
    kept = allocator.allocate(60 * MIB)
    allocator.allocate(30 * MIB)
    with pytest.raises(allocators.OutOfMemory, match=r"asked for 10\.00 MiB"):
        allocator.allocate(10 * MIB)
    assert allocator.stats().reserved == 3 * PAGE
    allocator.deallocate(kept)
    allocator.allocate(10 * MIB)
    assert allocator.stats().failures == 1


def test_a_pool_cannot_hold_more_than_the_device_even_if_asked_for_all_addresses() -> None:
    allocator = pool()
    for size in (GIB + 1, 2**62):
        with pytest.raises(allocators.OutOfMemory):
            allocator.allocate(size)
    assert allocator.stats().reserved == 0


def test_segments_get_what_is_free_in_pools() -> None:
    device = allocators.SimulatedDevice("1GiB")
    allocator, other = pool(device), allocators.make("naive", device)
    allocator.deallocate(allocator.allocate(900 * MIB))
    live = allocator.allocate(10 * MIB)
    assert device.reserved == 29 * PAGE
    other.allocate(GIB - PAGE)
    assert device.reserved == GIB
    allocator.deallocate(live)
    assert allocator.stats().reserved == PAGE
    allocator.check()
    with pytest.raises(allocators.OutOfMemory):
        other.allocate(2 * PAGE)


def test_pools_of_two_allocators_are_apart_and_end_with_them() -> None:
    device = allocators.SimulatedDevice("1GiB")
    one, other = pool(device), pool(device)
    one.deallocate(one.allocate(PAGE))
    other.allocate(PAGE)
    assert device.reserved == 2 * PAGE
    del one
    assert device.reserved == PAGE


def test_calls_of_a_pool_and_its_pages_have_estimated_costs() -> None:
    allocator = pool()
    blocks = [allocator.allocate(size) for size in (1, 40 * MIB)]  # one page, then one more
    for block in blocks:
        allocator.deallocate(block)
    allocator.trim()
    stats = allocator.device.stats()
    assert stats.calls_at_points[-4:] == [2, 2, 2, 2]
    assert stats.seconds == pytest.approx(2 * (1.5e-6 + 0.95e-6 + 33e-6 + 33e-6))
    assert (stats.malloc_calls, stats.free_calls) == (2, 2)


SPECS = ("cuda_async", "per_stream:of=cuda_async", "check:of=limit:bytes=200MiB,of=cuda_async")


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "device", ["sim:1GiB", "sim:150MiB", "sim:1GiB,fail_rate=0.3,addresses=up"]
)
def test_random_calls_keep_blocks_apart_and_lose_nothing(spec: str, device: str) -> None:
    opened = allocators.make_device(device)
    watched = Watched(allocators.make(spec, opened))
    rng = random.Random(f"{spec} {device}")
    for _ in range(400):
        draw = rng.random()
        if draw < 0.55:
            watched.allocate(int(2 ** rng.uniform(0, 26)), rng.randrange(3))
        elif draw < 0.95 and watched.live:
            watched.free(rng.choice(watched.live), rng.randrange(3))
        elif draw > 0.97:
            watched.trim()
        assert watched.allocator.stats().reserved == opened.reserved
    assert len(watched.live) > 5
    watched.free_all()
    watched.trim()
    assert opened.reserved == 0


# -- pages of segments


@pytest.mark.parametrize(
    ("sizes", "pages"),
    [
        ([1], 1),
        ([MIB] * 2, 1),  # up to half a page: they share one
        ([MIB] * 3, 2),
        ([MIB - 1, 1, MIB], 2),  # at multiples of 512 bytes
        ([MIB + 1] * 2, 2),
        ([2 * MIB], 1),
        ([2 * MIB + 1], 2),
    ],
)
def test_segments_take_whole_pages_which_small_ones_share(sizes: list[int], pages: int) -> None:
    """What is reserved is what was asked for; what is full is counted in pages."""
    for count, fits in ((pages, True), (pages - 1, False)):
        if count == 0:
            continue
        device = allocators.make_device(f"sim:{count * 2}MiB,page=2MiB")
        allocator, failures = allocators.make("naive", device), 0
        for size in sizes:
            try:
                allocator.allocate(size)
            except allocators.OutOfMemory:
                failures += 1
        assert (failures == 0) == fits
        assert device.reserved == allocator.stats().reserved
    if fits or pages > 1:
        allocator.trim()


def test_a_page_is_free_when_its_last_segment_is() -> None:
    device = allocators.make_device("sim:2MiB,page=2MiB")
    allocator = allocators.make("naive", device)
    first, second = allocator.allocate(1000), allocator.allocate(1000)
    assert second == first + 1024
    for block in (first, second):
        with pytest.raises(allocators.OutOfMemory):
            allocator.allocate(2 * MIB)
        allocator.deallocate(block)
    allocator.allocate(2 * MIB)


def test_pages_change_how_much_is_enough_and_no_other_bytes() -> None:
    trace = make([(ALLOC, 0, 3 * MIB), (ALLOC, 1, 100), (FREE, 0, 0), (FREE, 1, 0)])
    plain, paged = LargeRunner(trace, "sim:1GiB"), LargeRunner(trace, "sim:1GiB,page=2MiB")
    assert plain.counted("naive")["peak_reserved"] == 3 * MIB + 100
    assert paged.counted("naive")["peak_reserved"] == 3 * MIB + 100
    assert (plain.min_capacity("naive"), paged.min_capacity("naive")) == (4 * MIB, 6 * MIB)
