# SPDX-License-Identifier: Apache-2.0
"""The CUDA device on the null GPU's driver: no memory is ever lost."""

import random

import numpy as np
import pytest

from allocbench import allocators
from tests.conftest import GIB, MIB
from tests.null_driver import CAPACITY, ILLEGAL_ADDRESS, NAME, OUT_OF_MEMORY, Driver, python
from tests.oracle import Watched

STRATEGIES = [info.name for info in allocators.strategies()]
SPECS = [*STRATEGIES, "caching:expandable_segments=true", "per_stream:of=caching"]
SIZES = (100, 5000, 3 * MIB, 700, 9 * MIB, MIB + 1, 256, 25 * MIB)


def drift(allocator: allocators.Allocator, seed: int = 0, calls: int = 120) -> list[int]:
    """Random requests and frees on two streams and some trims; returns the live addresses."""
    rng = random.Random(seed)
    live: list[tuple[int, int]] = []
    for _ in range(calls):
        draw = rng.random()
        try:
            if draw < 0.55:
                stream = rng.randrange(2)
                live.append((allocator.allocate(rng.choice(SIZES), stream), stream))
            elif draw < 0.94 and live:
                address, stream = live.pop(rng.randrange(len(live)))
                allocator.deallocate(address, stream)
            elif draw > 0.97:
                allocator.trim()
        except (allocators.OutOfMemory, allocators.DeviceError):
            pass
    return [address for address, _ in live]


@pytest.mark.parametrize("spec", SPECS)
def test_every_strategy_works_on_cuda_and_returns_everything(driver: Driver, spec: str) -> None:
    with allocators.CudaDevice() as device:
        allocator = allocators.make(spec, device)
        watched = Watched(allocator)
        rng = random.Random(1)
        for _ in range(60):
            if rng.random() < 0.6 or not watched.live:
                watched.allocate(rng.choice(SIZES))
            else:
                watched.free(rng.choice(watched.live))
        stats = allocator.stats()
        assert stats.failures == 0
        assert stats.reserved == device.reserved == driver.outstanding()["bytes"]
        assert device.free_bytes == CAPACITY - driver.used()
        watched.free_all()
        allocator.step()
        watched.trim()
        assert device.reserved == 0
        counted = device.stats()
        assert counted.calls > 0
        assert counted.seconds > 0
        del allocator, watched


def test_the_device_describes_itself(driver: Driver) -> None:
    with allocators.CudaDevice(1) as device:
        assert (device.name, device.ordinal) == (NAME, 1)
        assert device.capacity == CAPACITY
        assert device.driver_version == 13000
        assert not device.simulated
        assert device.has_driver_pools
        assert device.cost_source == "measured"
        assert allocators.names(device) == STRATEGIES
    assert set(STRATEGIES) - set(allocators.names()) == {"cuda_async"}


def test_a_dropped_device_frees_its_allocators_memory(driver: Driver) -> None:
    allocator = allocators.make("caching", allocators.CudaDevice())
    allocator.allocate(5 * MIB)
    assert driver.outstanding()["segments"] == 1
    del allocator
    assert driver.outstanding() == {}


def test_two_devices_do_not_share_memory(driver: Driver) -> None:
    with allocators.CudaDevice(0) as one, allocators.CudaDevice(1) as other:
        assert driver.outstanding() == {"contexts": 2}
        allocators.make("naive", one).allocate(900 * MIB)
        allocators.make("naive", other).allocate(900 * MIB)
    assert driver.outstanding() == {}


@pytest.mark.parametrize("spec", SPECS)
def test_a_closed_device_refuses_requests_and_ignores_frees(driver: Driver, spec: str) -> None:
    device = allocators.CudaDevice()
    allocator = allocators.make(spec, device)
    kept = allocator.allocate(5 * MIB)
    device.close()
    assert driver.outstanding() == {}
    allocator.deallocate(kept)
    with pytest.raises(allocators.OutOfMemory):
        allocator.allocate(2 * GIB)
    device.close()


def test_a_limit_is_the_capacity(driver: Driver) -> None:
    with allocators.make_device("cuda:0,limit=64MiB") as device:  # type: ignore[attr-defined]
        assert device.capacity == 64 * MIB
        for spec in ("naive", "cuda_async", "caching:expandable_segments=true"):
            allocator = allocators.make(spec, device)
            allocator.allocate(20 * MIB)
            with pytest.raises(allocators.OutOfMemory, match=r"of a device of 64\.00 MiB"):
                allocator.allocate(50 * MIB)
            assert device.reserved <= 64 * MIB
            del allocator
    with allocators.CudaDevice(limit="8GiB") as device:
        assert device.capacity == CAPACITY


def test_a_gpu_filled_by_others_is_out_of_memory(driver: Driver) -> None:
    with allocators.CudaDevice() as device, allocators.CudaDevice() as another:
        filler = allocators.make("naive", another)
        filler.allocate(1000 * MIB)
        for spec in SPECS:
            with pytest.raises(allocators.OutOfMemory, match="asked for 100"):
                allocators.make(spec, device).allocate(100 * MIB)
        del filler


def test_memory_is_real_and_the_pattern_is_written(driver: Driver) -> None:
    with allocators.CudaDevice() as device:
        for spec in ("naive", "caching:expandable_segments=true", "cuda_async"):
            allocator = allocators.make(spec, device)
            address = allocator.allocate(4096)
            driver.write(address, b"\7" * 4096)
            assert driver.read(address, 4096) == b"\7" * 4096
            del allocator


# -- the driver's pool


def test_the_pool_keeps_free_memory_up_to_its_threshold(driver: Driver) -> None:
    with allocators.CudaDevice() as device:
        for threshold, kept in (("", 128 * MIB), (":release_threshold=0", 0)):
            allocator = allocators.make("cuda_async" + threshold, device)
            allocator.deallocate(allocator.allocate(100 * MIB))
            assert allocator.stats().reserved == 128 * MIB
            device.synchronize()
            allocator.deallocate(allocator.allocate(1))
            assert allocator.stats().reserved == max(kept, 32 * MIB)
            allocator.trim()
            assert allocator.stats().reserved == device.reserved == 0
            assert allocator.stats().peak_reserved == 128 * MIB
            del allocator


def test_a_limit_applies_to_the_pool(driver: Driver) -> None:
    with allocators.CudaDevice() as device:
        allocator = allocators.make("limit:bytes=100MiB,of=cuda_async", device)
        kept = allocator.allocate(60 * MIB)
        with pytest.raises(allocators.OutOfMemory):
            allocator.allocate(60 * MIB)
        allocator.check()
        assert allocator.stats().peak_reserved == 64 * MIB
        allocator.deallocate(kept)
        del allocator


def test_a_trim_waits_for_frees_that_a_stream_has_not_reached(driver: Driver) -> None:
    with allocators.CudaDevice() as device:
        allocator = allocators.make("cuda_async", device)
        block = allocator.allocate(20 * MIB)
        driver.hold(0)
        allocator.deallocate(block)
        allocator.trim()
        assert device.reserved == 0
        driver.hold(0, False)
        del allocator


def test_a_device_without_pools_says_so() -> None:
    nothing = np.empty(0, np.uint8), np.empty(0, np.uint64), np.empty(0, np.uint64)
    device = allocators.RecordedDevice("1GiB", *nothing)
    assert not device.has_driver_pools
    with pytest.raises(allocators.Unavailable, match=r"cuda_async needs .* this device"):
        allocators.make("check:of=cuda_async", device)
    with pytest.raises(allocators.SpecError, match="no option 'nope'"):
        allocators.make("cuda_async:nope=1", device)


# -- injected failures, of each driver call in turn

CALLS = [
    *("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxSynchronize", "cuMemAlloc_v2"),
    *("cuMemFree_v2", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease"),
    *("cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemPoolCreate", "cuMemPoolSetAttribute"),
    *("cuMemPoolGetAttribute", "cuMemPoolTrimTo", "cuMemAllocFromPoolAsync", "cuMemFreeAsync"),
    *("cuMemPoolDestroy", "cuStreamCreate", "cuStreamDestroy_v2"),
]


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, ILLEGAL_ADDRESS])
@pytest.mark.parametrize("call", CALLS)
def test_one_failed_call_loses_nothing(driver: Driver, call: str, error: int) -> None:
    reached = 0
    for spec in SPECS:
        for index in (1, 2, 5):
            device = allocators.CudaDevice()
            before = driver.calls(call)
            driver.fail(call, index, error)
            try:
                allocator = allocators.make(spec, device)
            except allocators.DeviceError:
                reached += 1
                device.close()
                continue
            drift(allocator, seed=index)
            allocator.check()
            assert allocator.stats().reserved <= device.reserved
            del allocator
            try:
                device.close()
            except allocators.DeviceError:  # close itself failed
                device.close()
            reached += driver.calls(call) - before >= index
            driver.fail()
            left = driver.outstanding()
            left.pop("contexts", None)
            assert left == {}, (spec, index)
    assert reached


def message(call: str, action: str) -> str:
    """The message of the first failure of a call while an allocator uses the device."""
    device = allocators.CudaDevice()
    specs = {"map": "caching:expandable_segments=true", "pool": "cuda_async", "": "naive"}
    allocator = allocators.make(specs[action], device)
    with pytest.raises(allocators.DeviceError) as caught:  # noqa: PT012
        kept = allocator.allocate(5 * MIB)
        allocator.deallocate(kept)
        allocator.trim()
    del allocator
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "action", "size"),
    [
        ("cuMemAlloc_v2", "", "5.00 MiB (5242880 bytes)"),
        ("cuMemFree_v2", "", "5.00 MiB (5242880 bytes)"),
        ("cuMemCreate", "map", "20.00 MiB"),
        ("cuMemSetAccess", "map", "20.00 MiB"),
        ("cuMemUnmap", "map", "20.00 MiB"),
        ("cuCtxSynchronize", "map", ""),
        ("cuMemAllocFromPoolAsync", "pool", "5.00 MiB"),
        ("cuMemFreeAsync", "pool", ""),
    ],
)
def test_a_failure_names_the_call_the_error_and_the_size(
    driver: Driver, call: str, action: str, size: str
) -> None:
    driver.fail(call, 1)
    shown = message(call, action)
    name = call.removesuffix("_v2")
    assert f"cuda:0: {name}: CUDA_ERROR_ILLEGAL_ADDRESS (700: an illegal memory access" in shown
    assert size in shown


def test_memory_kept_by_the_driver_is_reported_at_close(driver: Driver) -> None:
    device = allocators.CudaDevice()
    allocator = allocators.make("naive", device)
    address = allocator.allocate(3 * MIB)
    driver.fail("cuMemFree_v2", 0)
    with pytest.raises(allocators.DeviceError, match="cuMemFree"):
        allocator.deallocate(address)
    allocator.check()
    assert (allocator.stats().reserved, device.reserved) == (0, 3 * MIB)
    with pytest.raises(allocators.DeviceError, match=r"1 segments.*3\.00 MiB.*cuMemFree"):
        device.close()
    driver.fail()
    assert driver.outstanding()["segments"] == 1
    device.close()
    assert driver.outstanding() == {}
    del allocator


def test_a_page_kept_by_the_driver_keeps_its_reservation(driver: Driver) -> None:
    with allocators.CudaDevice() as device:
        allocator = allocators.make("expandable", device)
        allocator.allocate(6 * MIB)
        before = driver.calls("cuMemAddressFree")
        driver.fail("cuMemUnmap", 1)
        del allocator
        assert driver.calls("cuMemAddressFree") == before
        assert (driver.outstanding()["mappings"], device.reserved) == (1, 2 * MIB)


@pytest.mark.parametrize(
    "call",
    [
        *("cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"),
        *("cuDevicePrimaryCtxRetain", "cuMemGetAllocationGranularity"),
    ],
)
def test_a_failed_open_leaves_nothing_behind(driver: Driver, call: str) -> None:
    driver.fail(call, 1)
    with pytest.raises(allocators.DeviceError, match=call.removesuffix("_v2")):
        allocators.CudaDevice()


OPENS = """
from allocbench import allocators
try:
    allocators.make_device("cuda")
except allocators.SpecError as error:
    print(error)
"""


@pytest.mark.parametrize("call", ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"])
def test_a_failing_driver_is_reported(call: str) -> None:
    done = python(OPENS, settings={"fail": f"{call}:1:100"})
    error = "CUDA_ERROR_NO_DEVICE (100: no CUDA-capable device is detected)"
    assert done.stdout == f"no CUDA device found: {call}: {error}\n", done.stderr


def test_a_missing_driver_is_reported() -> None:
    done = python(OPENS, LD_LIBRARY_PATH="/nowhere")
    assert "no CUDA driver found: libcuda.so.1" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("cuda:2", "no CUDA device 2: the driver has 2"),
        ("cuda:-1", "ordinal=-1"),
        ("cuda:x", "ordinal=x"),
        ("cuda:0,limit=much", "much"),
        ("cuda:0,capacity=1GiB", "no option 'capacity'; valid options: limit, ordinal"),
        ("cuda:0,of=bfc", "cannot wrap anything"),
    ],
)
def test_an_invalid_spec_is_an_error_in_one_line(driver: Driver, text: str, word: str) -> None:
    with pytest.raises(allocators.SpecError, match=word) as caught:
        allocators.make_device(text)
    assert "\n" not in str(caught.value)
