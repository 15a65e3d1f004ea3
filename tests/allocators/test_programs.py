# SPDX-License-Identifier: Apache-2.0
"""Running programs on an allocator: streams, events, graphs, threads; on the null GPU's driver."""

import numpy as np
import pytest

from allocbench import allocators
from allocbench.allocators import _core
from allocbench.allocators.programs import Program
from tests.conftest import GIB, MIB, START
from tests.null_driver import ILLEGAL_ADDRESS, NAME, OUT_OF_MEMORY, Driver, python

SIDE, OTHER = 0x1000, 0x2000
SPECS = [*(info.name for info in allocators.strategies()), "caching:expandable_segments=true"]


@pytest.mark.parametrize("spec", SPECS)
def test_every_strategy_serves_a_program(start: START, driver: Driver, spec: str) -> None:
    driver.set_capacity(16 * GIB)
    program = start(spec)
    memory = program.on()
    kept = [memory.allocate(size, stream) for size in (100, 5 * MIB) for stream in (0, SIDE)]
    assert len(set(kept)) == 4
    used = driver.used()
    for address in kept[:3]:
        memory.deallocate(address)
    (use,) = program.uses()
    assert (use.stats.allocations, use.stats.frees) == (4, 3)
    assert use.program.alloc.count == 4
    assert use.program.free.count == 3
    assert 0 < use.program.alloc.percentile(0.5) <= use.program.alloc.max
    assert use.reserved == driver.outstanding()["bytes"]
    assert memory.device.free_bytes == 16 * GIB - driver.used()
    assert use.gpu_peak_used == used >= use.stats.peak_requested
    row = use.row()
    assert row["peak_reserved"] == use.stats.peak_reserved
    share = use.stats.peak_allocated / use.stats.peak_reserved
    assert (row["utilization"], row["fragmentation_ratio"]) == (share, 1 - share)
    assert row["device_seconds_source"] == "measured"
    program.close()
    assert driver.outstanding() == {}


@pytest.mark.parametrize("spec", SPECS)
def test_a_block_never_silently_moves_to_another_stream(
    start: START, driver: Driver, spec: str
) -> None:
    driver.set_capacity(16 * GIB)
    memory = start(spec).on()
    freed = memory.allocate(5 * MIB, 0)
    keeps = memory.allocate(5 * MIB, 0)  # so that nothing is returned to the device
    memory.deallocate(freed)
    elsewhere = memory.allocate(5 * MIB, SIDE)
    if spec not in ("naive", "cuda_async"):  # they use the driver's pool, which knows the streams
        assert elsewhere != freed
    assert keeps != elsewhere


def test_a_strategy_that_ignores_streams_gets_one_instance_per_stream(start: START) -> None:
    program = start("record:of=limit:bytes=512MiB,of=bfc")
    memory = program.on()
    for stream in (0, SIDE, OTHER, SIDE):
        memory.deallocate(memory.allocate(1000, stream))
    assert len(memory.allocator.snapshot()) == 3
    assert program.recording().stream.tolist() == [0, 0, 1, 1, 2, 2, 1, 1]


def test_a_block_used_on_another_stream_waits_for_it(start: START, driver: Driver) -> None:
    memory = start("caching").on()
    address = memory.allocate(5 * MIB)
    memory.use_on(address, SIDE)
    memory.use_on(address, SIDE)
    driver.hold(SIDE)
    memory.deallocate(address)
    assert driver.outstanding()["events"] == 1
    assert (memory.stats().waiting, memory.stats().deferred) == (1, 1)
    assert memory.allocator.stats().frees == 0
    other = memory.allocate(5 * MIB)
    assert other != address
    driver.hold(SIDE, False)
    assert memory.allocate(5 * MIB) == address
    assert memory.stats().waiting == 0
    assert "events" not in driver.outstanding()


def test_a_block_waits_for_all_its_streams_independently_of_others(
    start: START, driver: Driver
) -> None:
    memory = start("caching").on()
    both, single = memory.allocate(30 * MIB), memory.allocate(40 * MIB)
    for address, stream in ((both, SIDE), (both, OTHER), (single, OTHER)):
        memory.use_on(address, stream)
    driver.hold(SIDE)
    memory.deallocate(both)
    memory.deallocate(single)
    assert memory.allocate(40 * MIB) == single
    assert memory.allocate(30 * MIB) != both
    driver.hold(SIDE, False)
    assert memory.allocate(30 * MIB) == both


def test_the_blocks_own_stream_needs_no_event(start: START, driver: Driver) -> None:
    memory = start("caching").on()
    address = memory.allocate(5 * MIB, SIDE)
    memory.use_on(address, SIDE)
    memory.deallocate(address)
    assert memory.allocate(5 * MIB, SIDE) == address
    assert memory.stats().deferred == 0


def test_the_program_waits_before_a_request_fails(start: START, driver: Driver) -> None:
    program = start("caching")
    memory = program.on()
    address = memory.allocate(800 * MIB)
    memory.use_on(address, SIDE)
    driver.hold(SIDE)
    memory.deallocate(address)
    assert memory.allocate(900 * MIB)
    stats = memory.stats()
    assert (stats.retries, stats.failures) == (1, 0)
    driver.hold(SIDE, False)
    (use,) = program.uses()
    assert use.row()["retries"] == 1 + use.stats.retries >= 2  # also one of the strategy


def test_a_trim_waits_for_events(start: START, driver: Driver) -> None:
    program = start("caching")
    memory = program.on()
    address = memory.allocate(800 * MIB)
    memory.use_on(address, SIDE)
    driver.hold(SIDE)
    memory.deallocate(address)
    program.trim()
    assert memory.device.reserved == 0
    driver.hold(SIDE, False)


def test_out_of_memory_has_all_the_numbers(start: START) -> None:
    memory = start("bfc", limit="512MiB").on()
    memory.allocate(100 * MIB)
    with pytest.raises(allocators.OutOfMemory) as caught:
        memory.allocate(600 * MIB)
    output_text = str(caught.value)
    assert "bfc: out of memory: asked for 600.00 MiB (629145600 bytes)" in output_text
    assert "of a device of 512.00 MiB" in output_text
    assert f"{NAME}: free" in output_text
    assert memory.stats().failures == 1


def test_a_double_free_is_reported_and_changes_nothing(start: START, driver: Driver) -> None:
    memory = start("caching").on()
    address = memory.allocate(1000)
    memory.use_on(address, SIDE)
    driver.hold(SIDE)
    memory.deallocate(address)
    for wrong in (address, address + 512, 1):
        with pytest.raises(allocators.BadFree):
            memory.deallocate(wrong)
    driver.hold(SIDE, False)


def test_freed_memory_is_poisoned(start: START, driver: Driver) -> None:
    memory = start("bfc", poison=True).on()
    address = memory.allocate(4096)
    driver.write(address, b"\7" * 4096)
    memory.deallocate(address)
    assert driver.read(address, 4096) == b"\xff" * 4096


@pytest.mark.parametrize("spec", ["naive", "cuda_async", "expandable"])
def test_memory_is_poisoned_before_it_goes_back(start: START, driver: Driver, spec: str) -> None:
    memory = start(spec, poison=True).on()
    kept = memory.allocate(5 * MIB)
    memory.deallocate(memory.allocate(4096))
    assert driver.calls("cuMemsetD8Async")
    memory.deallocate(kept)
    with pytest.raises(allocators.OutOfMemory) as caught:
        memory.allocate(64 * GIB)
    assert "cuMemsetD8Async" not in str(caught.value)  # it would have failed after the free


# -- graphs: see test_captures.py also


def test_a_graph_keeps_its_memory_until_it_is_released(start: START) -> None:
    memory = start("caching").on()
    outside = memory.allocate(5 * MIB, SIDE)
    memory.deallocate(outside)
    memory.begin_capture((0, 1), [SIDE])
    inside = memory.allocate(5 * MIB, SIDE)
    assert inside != outside
    memory.deallocate(inside)
    assert memory.allocate(5 * MIB, SIDE) == inside  # within the graph it can be reused
    assert memory.allocate(5 * MIB, OTHER) not in (inside, outside)
    memory.deallocate(inside)
    memory.end_capture((0, 1))
    assert memory.allocate(5 * MIB, SIDE) == outside
    reserved = memory.device.reserved
    memory.trim()
    memory.release((0, 1))
    assert memory.device.reserved == reserved - 20 * MIB


def test_a_block_that_outlives_its_graph_keeps_the_memory(start: START) -> None:
    memory = start("naive").on()
    memory.begin_capture((0, 1), [SIDE])
    output = memory.allocate(5 * MIB, SIDE)
    memory.end_capture((0, 1))
    memory.release((0, 1))
    assert memory.device.reserved == 20 * MIB  # a segment of `caching`, for every strategy
    memory.deallocate(output)
    assert memory.device.reserved == 0


def test_no_event_is_recorded_while_a_graph_is_captured(start: START, driver: Driver) -> None:
    memory = start("caching").on()
    address = memory.allocate(5 * MIB)
    memory.use_on(address, SIDE)
    memory.begin_capture((0, 1), [SIDE])
    before = driver.calls("cuEventRecord")
    memory.deallocate(address)
    memory.allocate(100, SIDE)
    assert driver.calls("cuEventRecord") == before
    assert memory.stats().waiting == 1
    memory.end_capture((0, 1))
    assert memory.allocate(5 * MIB) == address


# -- injected failures

CALLS = [
    *("cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize"),
    *("cuEventDestroy_v2", "cuMemGetInfo_v2", "cuMemsetD8Async", "cuMemAlloc_v2"),
    *("cuMemFree_v2", "cuCtxSynchronize", "cuCtxPushCurrent_v2"),
]


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, ILLEGAL_ADDRESS])
@pytest.mark.parametrize("call", CALLS)
def test_one_failed_call_loses_nothing(driver: Driver, call: str, error: int) -> None:
    for index in (1, 2, 4):
        program = Program("caching", poison=True)
        memory = program.on()
        driver.fail(call, index, error)
        live = []
        for n in range(12):
            try:
                live.append(memory.allocate((n + 1) * MIB, n % 2))
                memory.use_on(live[-1], SIDE)
            except allocators.OutOfMemory:
                pass
            if n % 3 == 2 and live:
                memory.deallocate(live.pop(0))
        for address in live:
            memory.deallocate(address)
        memory.trim()
        assert memory.allocator.stats().allocated == 0
        memory.allocator.check()
        program.close()
        driver.fail()
        program.close()
        left = driver.outstanding()
        if call == "cuEventDestroy_v2":  # one event, which goes with the context
            assert left.pop("abandoned", 0) <= 1
        assert left == {}, index
        driver.forget()


def test_a_request_that_fails_for_another_reason_says_so(start: START, driver: Driver) -> None:
    memory = start("naive").on()
    driver.fail("cuMemAlloc_v2", 1)
    with pytest.raises(allocators.OutOfMemory, match="cuMemAlloc: CUDA_ERROR_ILLEGAL_ADDRESS"):
        memory.allocate(1000)


def test_peaks_and_counts_of_one_gpu_or_of_all_begin_again(start: START) -> None:
    program = start("naive")

    def seen() -> list[tuple[int, int, int]]:
        totals = [use.program.totals.allocated for use in program.uses()]
        return [(one.peak >> 20, one.gained >> 20, one.lost >> 20) for one in totals]

    for gpu in range(2):
        program.on(gpu).allocate(MIB)
        program.on(gpu).deallocate(program.on(gpu).allocate(MIB))
    assert seen() == [(2, 2, 1)] * 2
    program.reset_peaks(1)
    program.reset_counts(0)
    assert seen() == [(2, 0, 0), (1, 2, 1)]
    program.reset_peaks()
    program.reset_counts()
    assert seen() == [(1, 0, 0)] * 2


# -- the end


def test_after_close_frees_are_ignored_and_requests_fail(start: START) -> None:
    program = start("bfc")
    memory = program.on()
    address = memory.allocate(1000)
    program.close()
    memory.deallocate(address)
    memory.deallocate(address)
    with pytest.raises(allocators.OutOfMemory, match="is closed: the process is ending"):
        memory.allocate(1000)


FIRST = """
import os
from allocbench.allocators.programs import Program
program = Program("caching")
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
if os.fork() == 0:
    program.on().deallocate(program.on().allocate(1000))
    print(len(program.uses()), program.on().device.uuid, flush=True)
    program.close()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), program.uses())
"""

UUIDS = """
from allocbench import allocators
print(*(allocators.CudaDevice(ordinal).uuid for ordinal in range(2)))
"""


def test_nothing_of_cuda_is_called_before_the_first_request() -> None:
    second = python(UUIDS).stdout.split()[1]
    done = python(FIRST)
    assert (done.stdout, done.stderr) == (f"1 {second}\n0 []\n", "")


def test_a_wrong_spec_does_not_start(driver: Driver) -> None:
    for spec in ("nope", "bfc:nope=1", "cuda_async:release_threshold=x", "limit:of=bfc"):
        with pytest.raises(allocators.SpecError):
            Program(spec)


def test_latencies_are_accurate_to_one_part_in_32() -> None:
    rng = np.random.default_rng(0)
    ticks = np.exp(rng.uniform(0, 30, 5000)).astype(np.uint64)
    latency, single = _core.Latency(), _core.Latency()
    single.add(1)
    for value in ticks.tolist():
        latency.add(value)
    second = single.max
    assert latency.count == 5000
    assert latency.mean == pytest.approx(ticks.mean() * second)
    assert latency.max == pytest.approx(int(ticks.max()) * second)
    for share in (0.01, 0.5, 0.9, 0.99, 0.999):
        exact = np.sort(ticks)[max(0, int(np.ceil(share * 5000)) - 1)] * second
        assert exact * 0.999 <= latency.percentile(share) <= exact * (1 + 1 / 32) + second
    assert latency.percentile(1.0) == pytest.approx(latency.max)
