# SPDX-License-Identifier: Apache-2.0
"""Several threads on one allocator: nothing is lost or handed out twice."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, Trace
from tests.conftest import GIB, MIB, Case
from tests.traces import make as trace_of

THREADS = 4


def program(seed: int, blocks: int) -> Trace:
    """Blocks allocated and freed in random order; none is left at the end."""
    rng = random.Random(seed)
    events, live = [], []
    for block in range(blocks):
        events.append((ALLOC, block, rng.choice([100, 700, 4096, MIB // 4, MIB])))
        live.append(block)
        while live and rng.random() < 0.5:
            events.append((FREE, live.pop(rng.randrange(len(live))), 0))
    return trace_of([*events, *((FREE, block, 0) for block in live)])


def on_a_large_device(case: Case, wrapper: str = "") -> allocators.Allocator:
    spec = case.spec if case.most is None else case.info.name
    return allocators.make(wrapper + spec, allocators.SimulatedDevice(1024 * GIB))


def test_replays_in_threads_add_up(case: Case) -> None:
    allocator = on_a_large_device(case, "check:of=")  # which compares each block with all others
    traces = [program(seed, 3000) for seed in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda trace: allocators.replay(trace, allocator), traces))
    stats = allocator.stats()
    assert stats.allocations == stats.frees == THREADS * 3000
    assert (stats.failures, stats.requested, stats.allocated) == (0, 0, 0)
    assert [r.max_load for r in results] == [trace.max_load for trace in traces]
    assert stats.peak_requested <= sum(result.max_load for result in results)
    allocator.check()
    allocator.trim()
    assert allocator.device.reserved == 0


def test_a_concurrent_check_finds_nothing_broken(case: Case) -> None:
    allocator = on_a_large_device(case)
    trace = program(0, 8000)
    with ThreadPoolExecutor(1) as pool:
        replaying = pool.submit(allocators.replay, trace, allocator)
        while not replaying.done():
            allocator.check()
        replaying.result()


def test_threads_that_end_leave_the_lock_to_others() -> None:
    """Each thread calls often enough to own the lock. The next one gets its number."""
    allocator = allocators.make("bfc", allocators.SimulatedDevice(1024 * GIB))
    trace = program(0, 200)
    for _ in range(100):
        thread = threading.Thread(target=allocators.replay, args=(trace, allocator))
        thread.start()
        thread.join()
    stats = allocator.stats()
    assert stats.allocations == stats.frees == 100 * 200
    allocator.check()


def test_more_threads_than_can_own_the_lock() -> None:
    """64 living threads have numbers with which they can own locks; the others cannot."""
    threads = 80
    allocator = allocators.make("bfc", allocators.SimulatedDevice(1024 * GIB))
    traces = [program(seed, 100) for seed in range(threads)]
    all_alive = threading.Barrier(threads)

    def work(trace: Trace) -> None:
        allocators.replay(trace, allocator)
        all_alive.wait()
        allocators.replay(trace, allocator)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, traces))
    stats = allocator.stats()
    assert stats.allocations == stats.frees == 2 * threads * 100
    assert (stats.requested, stats.allocated) == (0, 0)
    allocator.check()
