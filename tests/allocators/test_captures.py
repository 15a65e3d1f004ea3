# SPDX-License-Identifier: Apache-2.0
"""Captured graphs: their memory stays, and a capture never becomes invalid; on the null GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from allocbench import allocators
from allocbench.allocators._core import ProgramMemory
from tests.conftest import GIB, MIB, START
from tests.null_driver import Driver

SIDE, OTHER, THIRD = 0x1000, 0x2000, 0x3000
POOL = (0, 1)
SPECS = [*(info.name for info in allocators.strategies()), "caching:expandable_segments=true"]

KEEP = ("arena", "bfc", "bump", "buddy", "free_lists", "rmm_arena", "rmm_pool")
"""They keep their memory, or take half of the device for each stream: 700 MiB do not fit later."""


@contextmanager
def capturing(driver: Driver, memory: ProgramMemory) -> Iterator[None]:
    """Capture SIDE, as PyTorch does; raises RuntimeError if the capture became invalid."""
    memory.begin_capture(POOL, [SIDE])
    try:
        with driver.capturing(SIDE):
            yield
    finally:
        memory.end_capture(POOL)


@pytest.mark.parametrize("spec", SPECS)
def test_the_addresses_of_a_graph_stay_until_it_is_released(
    start: START, driver: Driver, spec: str
) -> None:
    driver.set_capacity(16 * GIB)
    memory = start(spec).on()
    with capturing(driver, memory):
        used = [memory.allocate(size, SIDE) for size in (5 * MIB, 30 * MIB, 1000)]
        for address in used:
            memory.deallocate(address)
    before = memory.stats().totals.graphs.current
    assert before == 52 * MIB  # segments of 20, 30 and 2 MiB
    memory.trim()
    with pytest.raises(allocators.OutOfMemory, match=r"52\.00 MiB .* are reserved for 1 graph"):
        memory.allocate(32 * GIB)
    memory.trim()
    for address in used:
        assert driver.is_memory(address)
    assert memory.stats().totals.graphs.current == before
    memory.release(POOL)
    assert memory.stats().totals.graphs.current == 0
    for address in used:
        assert not driver.is_memory(address)


@pytest.mark.parametrize("spec", SPECS)
def test_a_capture_that_runs_short_stays_valid_and_keeps_its_addresses(
    start: START, driver: Driver, spec: str
) -> None:
    memory = start(spec).on()
    with capturing(driver, memory):
        first = memory.allocate(500 * MIB, SIDE)
        memory.deallocate(first)
        with pytest.raises(allocators.OutOfMemory, match="during a capture"):
            memory.allocate(700 * MIB, SIDE)
    assert driver.is_memory(first)
    memory.release(POOL)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec not in KEEP])
def test_another_stream_that_runs_short_leaves_the_capture_valid(
    start: START, driver: Driver, spec: str
) -> None:
    driver.set_capacity(1100 * MIB)
    memory = start(spec).on()
    cached = [memory.allocate(300 * MIB, OTHER), memory.allocate(500 * MIB, THIRD)]
    before = driver.calls("cuCtxSynchronize")
    with capturing(driver, memory):
        memory.allocate(1000, SIDE)
        for address in cached:
            memory.deallocate(address)
        memory.trim()
        with pytest.raises(allocators.OutOfMemory):
            memory.allocate(700 * MIB, OTHER)
        assert driver.calls("cuCtxSynchronize") == before
    assert memory.allocate(700 * MIB, OTHER)  # memory that could not be returned then is free now
    memory.release(POOL)


def test_frees_on_a_capturing_stream_wait_for_the_end_of_the_capture(
    start: START, driver: Driver
) -> None:
    memory = start("cuda_async").on()
    uncaptured = memory.allocate(5 * MIB, SIDE)
    before = driver.calls("cuMemFreeAsync")
    with capturing(driver, memory):
        memory.deallocate(uncaptured)
        assert driver.calls("cuMemFreeAsync") == before
    assert driver.calls("cuMemFreeAsync") == before + 1
    memory.release(POOL)


def test_a_failed_capture_blocks_nothing_once_its_graph_is_gone(
    start: START, driver: Driver
) -> None:
    memory = start("naive").on()
    memory.begin_capture(POOL, [SIDE])
    address = memory.allocate(5 * MIB)
    memory.release(POOL)  # with no end
    memory.deallocate(address)
    assert memory.device.reserved == 0


def test_graphs_that_share_a_pool_keep_it_until_the_last_is_released(
    start: START, driver: Driver
) -> None:
    memory = start("slab").on()
    for _ in range(2):
        with capturing(driver, memory):
            memory.deallocate(memory.allocate(5 * MIB, SIDE))
    memory.release(POOL)
    assert memory.stats().totals.graphs.current == 20 * MIB
    memory.release(POOL)
    assert memory.stats().totals.graphs.current == 0


def test_blocks_of_a_graph_are_not_poisoned(start: START, driver: Driver) -> None:
    memory = start("caching", poison=True).on()
    with capturing(driver, memory):
        output = memory.allocate(5 * MIB, SIDE)
    before = driver.calls("cuMemsetD8Async")
    memory.deallocate(output)  # a replay may be writing there
    assert driver.calls("cuMemsetD8Async") == before
    memory.release(POOL)


def test_the_rules_of_captures_are_those_of_the_driver(driver: Driver) -> None:
    with (
        allocators.CudaDevice() as device,
        pytest.raises(RuntimeError, match="the capture is invalid: 901"),
        driver.capturing(SIDE),
    ):
        device.synchronize()
