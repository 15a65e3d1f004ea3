# SPDX-License-Identifier: Apache-2.0
"""Default streams, which share handles, and programs on several GPUs; on the null GPU."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from allocbench import allocators
from tests.conftest import MIB, START
from tests.null_driver import Driver

# -- several GPUs


def test_a_block_used_on_another_gpu_waits_for_it(start: START, driver: Driver) -> None:
    with allocators.CudaDevice(1), driver.new_stream(1) as made:
        memory = start("caching").on()
        for stream in (made, 0):  # the default stream has the same handle on both
            address = memory.allocate(5 * MIB)
            memory.use_on(address, stream)
            driver.hold(stream, device=1)
            memory.deallocate(address)
            assert memory.stats().waiting == 1
            driver.hold(stream, False, device=1)
            assert memory.allocate(5 * MIB) == address
            memory.deallocate(address)


def test_without_an_event_the_gpu_of_the_stream_is_waited_for(start: START, driver: Driver) -> None:
    with allocators.CudaDevice(1):
        memory = start("caching").on()
        address = memory.allocate(5 * MIB)
        memory.use_on(address, 0)
        driver.hold(0, device=1)
        driver.fail("cuEventCreate", 1)
        memory.deallocate(address)
        driver.fail()
        assert not driver.busy(0, device=1)
        driver.hold(0, False, device=1)


@pytest.mark.parametrize("spec", ["expandable", "cuda_async", "caching:expandable_segments=true"])
def test_memory_is_open_to_the_other_gpus_of_a_program(
    start: START, driver: Driver, spec: str
) -> None:
    program = start(spec)
    before = program.on(0).allocate(5 * MIB)
    assert not driver.accessible(before, 1)
    program.on(1)
    after = program.on(1).allocate(5 * MIB)
    assert driver.accessible(before, 1)
    assert driver.accessible(after, 0)
    assert driver.accessible(program.on(0).allocate(100 * MIB), 1)


# -- the default stream of a thread

PER_THREAD = 2


def test_the_default_stream_of_each_thread_is_one_of_its_own(start: START, driver: Driver) -> None:
    memory = start("caching").on()
    mine = memory.allocate(5 * MIB, PER_THREAD)
    memory.deallocate(mine)
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(memory.allocate, 5 * MIB, PER_THREAD).result()
        assert theirs != mine
        memory.use_on(theirs, PER_THREAD)  # this thread's stream, not that of the block
        driver.hold(PER_THREAD)
        memory.deallocate(theirs)
        assert memory.stats().waiting == 1
        driver.hold(PER_THREAD, False)
        assert pool.submit(memory.allocate, 5 * MIB, PER_THREAD).result() == theirs
    assert memory.allocate(5 * MIB, PER_THREAD) == mine


def test_the_default_stream_has_two_handles(start: START) -> None:
    memory = start("caching").on()
    address = memory.allocate(5 * MIB, 0)
    memory.use_on(address, 1)
    memory.deallocate(address)
    assert memory.stats().deferred == 0
    assert memory.allocate(5 * MIB, 1) == address


def test_the_free_memory_of_the_gpu_is_read_outside_of_the_latencies(
    start: START, driver: Driver
) -> None:
    memory = start("naive").on()
    driver.slow("cuMemGetInfo_v2", 0.05)
    memory.allocate(5 * MIB)
    driver.slow("", 0)
    assert driver.calls("cuMemGetInfo_v2")
    assert memory.stats().alloc.max < 0.05
