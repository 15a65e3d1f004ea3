# SPDX-License-Identifier: Apache-2.0
"""The native library: memory, pools, streams, captures, handles, objects that graphs keep."""

from pathlib import Path

import pytest

from tests.null_gpu.core import seen

MIB = 1 << 20


def test_memory_ends_where_the_card_does() -> None:
    found = seen(
        """
seen["fits"] = [malloc(40 << 20)[0], malloc(41 << 20)[0], malloc(40 << 20)[0]]
free, total = c_size_t(), c_size_t()
gpu.null_cudaMemGetInfo(byref(free), byref(total))
seen["info"] = free.value, total.value
seen["error"] = gpu.null_cudaGetLastError(), gpu.null_cudaGetLastError()
""",
        memory=100 * MIB,
        context=20 * MIB,
    )
    assert found == {"fits": [0, 2, 0], "info": [0, 100 * MIB], "error": [2, 0]}


def test_freed_memory_is_there_again_and_addresses_are_reused() -> None:
    found = seen(
        """
_, first = malloc(1)
_, second = malloc(3 << 20)
seen["distance"] = second.value - first.value
seen["frees"] = gpu.null_cudaFree(first), gpu.null_cudaFree(first)
_, third = malloc(2 << 20)
seen["same"] = third.value == first.value
counters = (c_uint64 * 6)()
gpu.null_counters(counters)
seen["counters"] = list(counters)
""",
        memory=64 * MIB,
        context=0,
    )
    assert found["distance"] == -4 * MIB  # later ones lie below, as on Linux
    assert found["frees"] == [0, 1]  # the second: not an allocation
    assert found["same"]
    assert found["counters"] == [64 * MIB, 6 * MIB, 6 * MIB, 3, 0, 0]


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_processes_share_a_card_until_they_end(tmp_path: Path, end: str) -> None:
    found = seen(
        f"""
import os
(ready, tell), (wait, go) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.write(tell, bytes([malloc(30 << 20)[0]]))
    os.read(wait, 1)
    {end}
def free():
    free, total = c_size_t(), c_size_t()
    gpu.null_cudaMemGetInfo(byref(free), byref(total))
    return free.value
seen["other"] = os.read(ready, 1)[0]
seen["free"] = [free()]
seen["mallocs"] = malloc(30 << 20)[0], malloc(20 << 20)[0]
os.write(go, b"x")
os.waitpid(child, 0)
seen["mallocs after"] = malloc(20 << 20)[0], malloc(20 << 20)[0]
seen["free"].append(free())
""",
        memory=64 * MIB,
        context=4 * MIB,
        usage=str(tmp_path / "usage"),
    )
    assert found["other"] == 0
    assert found["mallocs"] == [2, 0]
    assert found["mallocs after"] == [0, 0]
    assert found["free"] == [(64 - 30 - 2 * 4) * MIB, (64 - 4 - 60) * MIB]


def test_later_allocations_lie_above_if_requested() -> None:
    program = """
places = [malloc(size << 20)[1].value for size in (2, 6, 2, 2)]
seen["steps"] = [after - before for before, after in zip(places, places[1:])]
gpu.null_cudaFree(c_void_p(places[1]))
seen["reused"] = malloc(4 << 20)[1].value - places[1]
"""
    assert seen(program) == {"steps": [-6 * MIB, -2 * MIB, -2 * MIB], "reused": 2 * MIB}
    ascending = seen(program, addresses_ascend=1)
    assert ascending == {"steps": [2 * MIB, 6 * MIB, 2 * MIB], "reused": 0}


@pytest.mark.parametrize(("first", "status"), [("", 0), ("malloc(1)", 2)])
def test_a_child_has_its_own_memory_unless_its_parent_had_some(
    tmp_path: Path, first: str, status: int
) -> None:
    found = seen(
        f"""
import os
gpu.null_nvmlDeviceGetCount_v2(byref(c_int()))
{first}
child = os.fork()
if child == 0:
    os._exit(malloc(30 << 20)[0])
seen["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
""",
        memory=64 * MIB,
        context=0,
        usage=str(tmp_path / "usage"),
    )
    assert found == {"child": status}


def test_nvml_reports_the_compute_capability() -> None:
    program = """
device, major, minor = c_size_t(), c_int(), c_int()
seen["status"] = gpu.null_nvmlInitWithFlags(0)
gpu.null_nvmlDeviceGetHandleByIndex_v2(0, byref(device))
gpu.null_nvmlDeviceGetCudaComputeCapability(device, byref(major), byref(minor))
seen["capability"] = [major.value, minor.value]
"""
    assert seen(program, compute_capability=89) == {"status": 0, "capability": [8, 9]}
    assert seen(program, compute_capability=120)["capability"] == [12, 0]


def test_physical_memory_counts_while_it_is_held_or_mapped() -> None:
    found = seen(
        """
def used():
    free, total = c_size_t(), c_size_t()
    gpu.null_cuMemGetInfo_v2(byref(free), byref(total))
    return total.value - free.value
context()
address, handle = c_uint64(), c_ulonglong()
gpu.null_cuMemAddressReserve(byref(address), c_size_t(1 << 40), c_size_t(0), c_uint64(0), 0)
steps = [used()]
seen["created"] = gpu.null_cuMemCreate(byref(handle), c_size_t(20 << 20), None, c_ulonglong(0))
steps.append(used())
gpu.null_cuMemMap(address, c_size_t(20 << 20), c_size_t(0), handle, c_ulonglong(0))
gpu.null_cuMemRelease(handle)
steps.append(used())
gpu.null_cuMemUnmap(address, c_size_t(20 << 20))
steps.append(used())
seen["used"] = steps
seen["too much"] = gpu.null_cuMemCreate(byref(handle), c_size_t(66 << 20), None, c_ulonglong(0))
""",
        memory=64 * MIB,
        context=0,
    )
    assert found == {"created": 0, "used": [0, 20 * MIB, 20 * MIB, 0], "too much": 2}


def test_a_pool_keeps_what_its_threshold_says() -> None:
    found = seen(
        """
pool, value = c_void_p(), c_uint64()
gpu.null_cudaDeviceGetDefaultMemPool(byref(pool), 0)
def attribute(number):
    gpu.null_cudaMemPoolGetAttribute(pool, number, byref(value))
    return value.value
pointers = [c_void_p() for _ in range(2)]
for pointer in pointers:
    assert gpu.null_cudaMallocAsync(byref(pointer), c_size_t(20 << 20), None) == 0
seen["reserved, used"] = attribute(5), attribute(7)
for pointer in pointers:
    gpu.null_cudaFreeAsync(pointer, None)
seen["freed"] = attribute(5), attribute(7)
gpu.null_cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(2**64 - 1)))
gpu.null_cudaDeviceSynchronize()
seen["kept"] = attribute(5)
gpu.null_cudaMemPoolTrimTo(pool, c_size_t(0))
seen["trimmed"] = attribute(5), attribute(6), attribute(8)
""",
        memory=256 * MIB,
        context=0,
    )
    assert found["reserved, used"] == [64 * MIB, 40 * MIB]
    assert found["freed"] == [64 * MIB, 0]
    assert found["kept"] == 64 * MIB
    assert found["trimmed"] == [0, 64 * MIB, 40 * MIB]


def test_a_capture_takes_in_the_streams_that_wait_for_it() -> None:
    found = seen(
        """
first, second, event, graph = c_void_p(), c_void_p(), c_void_p(), c_void_p()
gpu.null_cudaStreamCreate(byref(first))
gpu.null_cudaStreamCreate(byref(second))
gpu.null_cudaEventCreate(byref(event))
def status(stream):
    out = c_int()
    gpu.null_cudaStreamIsCapturing(stream, byref(out))
    return out.value
gpu.null_cudaStreamBeginCapture(first, 0)
gpu.null_cudaEventRecord(event, first)
seen["before"] = status(first), status(second), status(None)
gpu.null_cudaStreamWaitEvent(second, event, 0)
gpu.null_cudaMemsetAsync(None, 0, c_size_t(0), second)
seen["joined"] = status(second)
seen["ended by another"] = gpu.null_cudaStreamEndCapture(second, byref(graph))
seen["ended"] = gpu.null_cudaStreamEndCapture(first, byref(graph))
count = c_size_t()
gpu.null_cudaGraphGetNodes(graph, None, byref(count))
seen["nodes"] = count.value
seen["after"] = status(first), status(second)
"""
    )
    assert found == {
        "before": [1, 0, 0],
        "joined": 1,
        "ended by another": 1,
        "ended": 0,
        "nodes": 1,
        "after": [0, 0],
    }


def test_a_forbidden_call_ends_a_capture() -> None:
    found = seen(
        """
import threading
stream, graph = c_void_p(), c_void_p()
def malloc_elsewhere():
    results = []
    thread = threading.Thread(target=lambda: results.append(malloc(1)[0]))
    thread.start()
    thread.join()
    return results[0]
gpu.null_cudaStreamCreate(byref(stream))
gpu.null_cudaStreamBeginCapture(stream, 0)
mode = c_int(2)
gpu.null_cudaThreadExchangeStreamCaptureMode(byref(mode))
seen["relaxed"] = malloc(1)[0]
gpu.null_cudaThreadExchangeStreamCaptureMode(byref(mode))
seen["global"] = malloc(1)[0]
seen["ended"] = gpu.null_cudaStreamEndCapture(stream, byref(graph)), graph.value
gpu.null_cudaStreamBeginCapture(stream, 0)
seen["elsewhere"] = malloc_elsewhere(), gpu.null_cudaStreamEndCapture(stream, byref(graph))
gpu.null_cudaStreamBeginCapture(stream, 1)
seen["elsewhere, of a thread"] = malloc_elsewhere()
seen["of a thread"] = malloc(1)[0], gpu.null_cudaStreamEndCapture(stream, byref(graph))
gpu.null_cudaStreamBeginCapture(stream, 2)
seen["relaxed capture"] = malloc(1)[0], malloc_elsewhere()
seen["waited for"] = gpu.null_cudaStreamSynchronize(stream)
seen["ended too"] = gpu.null_cudaStreamEndCapture(stream, byref(graph))
"""
    )
    assert found["relaxed"] == 0
    assert found["global"] == 900
    assert found["ended"] == [901, None]
    assert found["elsewhere"] == [900, 901]
    assert found["elsewhere, of a thread"] == 0
    assert found["of a thread"] == [900, 901]
    assert found["relaxed capture"] == [0, 0]
    assert (found["waited for"], found["ended too"]) == (900, 901)


def test_visible_devices_are_those_that_are_named() -> None:
    program = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "2,0,7,1"
libc = ctypes.CDLL(None)
libc.setenv(b"CUDA_VISIBLE_DEVICES", b"2,0,7,1", 1)
count, bus = c_int(), ctypes.create_string_buffer(16)
gpu.null_cudaGetDeviceCount(byref(count))
seen["count"] = count.value
gpu.null_cudaDeviceGetPCIBusId(bus, 16, 0)
seen["first"] = bus.value.decode()
seen["third"] = gpu.null_cudaSetDevice(2)
"""
    assert seen(program, count=4) == {"count": 2, "first": "0000:03:00.0", "third": 101}


def test_streams_and_events_belong_to_the_gpu_that_was_current() -> None:
    found = seen(
        """
contexts = [c_void_p(), c_void_p()]
gpu.null_cuInit(0)
for device in range(2):
    gpu.null_cuDevicePrimaryCtxRetain(byref(contexts[device]), device)
stream, event, other, current = c_void_p(), c_void_p(), c_void_p(), c_void_p()
gpu.null_cudaSetDevice(1)
gpu.null_cudaStreamCreate(byref(stream))
gpu.null_cudaEventCreate(byref(event))
gpu.null_cudaSetDevice(0)
gpu.null_cudaEventCreate(byref(other))
gpu.null_cuStreamGetCtx(stream, byref(current))
seen["context"] = current.value == contexts[1].value
seen["recorded"] = gpu.null_cudaEventRecord(event, stream), gpu.null_cudaEventRecord(other, stream)
seen["on a default stream"] = [gpu.null_cudaEventRecord(each, None) for each in (event, other)]
seen["waits"] = gpu.null_cudaStreamWaitEvent(stream, other, 0)
gpu.null_cuCtxPushCurrent_v2(contexts[1])
def number():
    gpu.null_cuCtxGetCurrent(byref(current))
    return [each.value for each in contexts].index(current.value) if current.value else None
seen["stack"] = [number()]
for _ in range(3):
    seen["stack"] += [gpu.null_cuCtxPopCurrent_v2(None), number()]
gpu.null_cudaSetDevice(1)
seen["again"] = number()
""",
        count=2,
    )
    assert found == {
        "context": True,
        "recorded": [0, 400],
        "on a default stream": [400, 0],
        "waits": 0,
        "stack": [1, 0, 0, 0, None, 201, None],
        "again": 1,
    }


def test_functions_that_run_at_exit_use_the_stack_of_contexts() -> None:
    """They run after the objects of the thread are destroyed; AddressSanitizer sees any use."""
    program = """
for _ in range(3):
    context()
at_exit = ctypes.CDLL(None).__cxa_atexit
for function in (gpu.null_cuCtxPopCurrent_v2, gpu.null_cuCtxPushCurrent_v2):
    seen[function.__name__] = at_exit(function, None, None)
"""
    assert seen(program) == {"null_cuCtxPopCurrent_v2": 0, "null_cuCtxPushCurrent_v2": 0}


def test_waiting_for_threads_until_they_sleep() -> None:
    program = """
import hashlib, threading
data = bytes(64 << 20)
go, started, done, over = (threading.Event() for _ in range(4))
def work():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name:
        name.write("hasher_0")
    started.set()
    while not go.is_set():
        hashlib.sha256(data)  # without Python's lock
    hashlib.sha256(data)
    done.set()
    over.wait()
thread = threading.Thread(target=work)
thread.start()
started.wait()
gpu.null_wait_for_threads(b"other", 100_000)
gpu.null_wait_for_threads(b"hasher", 1)
seen["before"] = done.is_set()
go.set()
gpu.null_wait_for_threads(b"hasher", 100_000)
seen["after"] = done.is_set()
over.set()
"""
    assert seen(program) == {"before": False, "after": True}


def test_handles_of_every_device_are_aligned_like_pointers() -> None:
    found = seen(
        """
streams = []
for device in range(3):
    gpu.null_cudaSetDevice(device)
    stream = c_void_p()
    gpu.null_cudaStreamCreateWithFlags(byref(stream), 1)
    streams.append((stream.value, gpu.null_cudaStreamQuery(stream)))
seen["streams"] = streams
""",
        count=3,
    )
    assert [(stream % 16, status) for stream, status in found["streams"]] == [(0, 0)] * 3


def test_an_object_lives_as_long_as_a_graph_that_keeps_it() -> None:
    found = seen(
        """
gone = []
destroy = ctypes.CFUNCTYPE(None, c_void_p)(gone.append)
def made(value, references=1):
    thing = c_void_p()
    assert gpu.null_cudaUserObjectCreate(byref(thing), c_void_p(value), destroy, references, 1) == 0
    return thing
graph, executable = c_void_p(), c_void_p()
gpu.null_cudaGraphCreate(byref(graph), 0)
moved, shared = made(7), made(8)
assert gpu.null_cudaGraphRetainUserObject(graph, moved, 1, 1) == 0
assert gpu.null_cudaGraphRetainUserObject(graph, shared, 1, 0) == 0
gpu.null_cudaGraphInstantiate(byref(executable), graph, c_ulonglong(0))
gpu.null_cudaGraphDestroy(graph)
seen["graph destroyed"] = list(gone)
gpu.null_cudaGraphExecDestroy(executable)
seen["executable destroyed"] = list(gone)
assert gpu.null_cudaUserObjectRelease(shared, 1) == 0
seen["released"] = list(gone)
seen["twice"] = gpu.null_cudaUserObjectRelease(shared, 1)
"""
    )
    assert found == {
        "graph destroyed": [],
        "executable destroyed": [7],
        "released": [7, 8],
        "twice": 1,
    }


MODULES = """
text = ctypes.create_string_buffer(b"x.version 8.0 .target sm_90")
handle = c_void_p()
for name, code in (("missing", None), ("odd", ctypes.addressof(text) + 1)):
    seen[name] = [gpu.null_cuModuleLoadData(byref(handle), c_void_p(code)), bool(handle.value)]
"""


def test_code_of_any_alignment_or_none_is_loaded() -> None:
    assert seen(MODULES) == {"missing": [0, True], "odd": [0, True]}
