# SPDX-License-Identifier: Apache-2.0
"""bfc waiting for other threads: a failed request is retried when memory is freed."""

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from allocbench import allocators
from tests.conftest import MIB, Make

LONG = "bfc:memory_limit=2MiB,retry_seconds=600"  # longer than any test takes
BRIEF = "bfc:memory_limit=2MiB,retry_seconds=0.02"


def still_waits(request: Future[int]) -> bool:
    """Whether it has no result, also after a short wait."""
    return not wait([request], timeout=0.05).done


@pytest.mark.parametrize(
    "around", ["", "check:of=", "record:of=limit:bytes=1GiB,of=", "per_stream:of="]
)
def test_a_request_waits_for_a_free_by_another_thread(make: Make, around: str) -> None:
    allocator = make(around + LONG)
    held = allocator.allocate(2 * MIB)
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(allocator.allocate, 2 * MIB)
        assert still_waits(request)
        allocator.deallocate(held)
        assert request.result(timeout=500) == held
    stats = allocator.stats()
    assert (stats.allocations, stats.failures) == (2, 0)


def test_a_request_keeps_waiting_if_too_little_is_freed(make: Make) -> None:
    allocator = make(LONG)
    halves = [allocator.allocate(MIB), allocator.allocate(MIB)]
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(allocator.allocate, 2 * MIB)
        assert still_waits(request)
        allocator.deallocate(halves[0])
        assert still_waits(request)
        allocator.deallocate(halves[1])
        assert request.result(timeout=500) == halves[0]


def test_other_threads_are_served_during_the_wait(make: Make) -> None:
    allocator = make(LONG)
    held, small = allocator.allocate(MIB), allocator.allocate(256)
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(allocator.allocate, 2 * MIB)
        assert still_waits(request)
        allocator.deallocate(allocator.allocate(1000))
        allocator.check()
        assert still_waits(request)
        allocator.deallocate(held)
        allocator.deallocate(small)
        request.result(timeout=500)


def test_every_waiting_request_is_eventually_served(make: Make) -> None:
    allocator = make(LONG)

    def work(_: int) -> None:
        for _ in range(50):
            allocator.deallocate(allocator.allocate(3 * MIB // 2))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4), timeout=500))
    assert (allocator.stats().allocations, allocator.stats().failures) == (200, 0)


def test_the_wait_ends(make: Make) -> None:
    allocator = make(BRIEF)
    allocator.allocate(2 * MIB)
    begin = time.monotonic()
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(1)
    assert time.monotonic() - begin >= 0.02
    assert allocator.stats().failures == 1


def test_no_wait_when_nothing_is_allocated(make: Make) -> None:
    with pytest.raises(allocators.OutOfMemory):
        make(LONG).allocate(2 * MIB + 1)


@pytest.mark.parametrize("size", [2**30 + 1, 2**62 + 1, 2**64 - 1])
def test_no_wait_for_more_than_the_capacity(make: Make, size: int) -> None:
    allocator = make(LONG)
    allocator.allocate(1)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(size)


def test_a_trim_by_another_thread_returns_memory_too(make: Make) -> None:
    allocator = make("bfc:memory_limit=8MiB,retry_seconds=600")
    allocator.allocate(2 * MIB)
    allocator.deallocate(allocator.allocate(4 * MIB))
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(allocator.allocate, 6 * MIB)
        assert still_waits(request)
        allocator.trim()
        request.result(timeout=500)
