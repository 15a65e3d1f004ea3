# SPDX-License-Identifier: Apache-2.0
"""The native library's driver: initialization, contexts, held streams, pools, errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allocbench.null_gpu import stubs
from tests.null_driver import KINDS, environment, make_driver, reported
from tests.null_gpu.core import seen

MIB = 1 << 20

BEFORE = """
U = c_ulonglong
def call(name, *arguments):
    return getattr(gpu, "null_" + name)(*arguments)
def alloc():
    address = U()
    return call("cuMemAlloc_v2", byref(address), c_size_t(1)), address
def outstanding():
    counts = (c_uint64 * 11)()
    gpu.null_outstanding(counts)
    return list(counts)
def made(name, *arguments):
    handle = c_void_p()
    assert call(name, byref(handle), *arguments) == 0
    return handle
"""


def driven(program: str, **settings: int | str) -> Any:
    """What a program stores in `seen` with these functions at hand."""
    return seen(BEFORE + program, **settings)


def test_functions_of_the_driver_by_name() -> None:
    found = driven(
        """
address, status = c_void_p(), c_int()
def looked_up(name):
    old = call("cuGetProcAddress", name, byref(address), 13000, U(0)), bool(address.value)
    new = call("cuGetProcAddress_v2", name, byref(address), 13000, U(0), byref(status))
    return [*old, new, bool(address.value), status.value]
for name in (b"cuMemAlloc", b"cuEventQuery", b"cuNothing", b""):
    seen[name.decode()] = looked_up(name)
seen["table"] = call("cuGetExportTable", byref(address), bytes(16))
version = c_int()
for name in ("cudaRuntimeGetVersion", "cudaDriverGetVersion", "cuDriverGetVersion",
             "nvmlSystemGetCudaDriverVersion_v2"):
    call(name, byref(version))
    seen[name] = version.value
""",
        cuda_version=12040,
    )
    assert found["cuMemAlloc"] == found["cuEventQuery"] == [0, True, 0, True, 0]
    assert found["cuNothing"] == found[""] == [500, False, 500, False, 1]
    assert found["table"] == 500
    # Extensions for another CUDA find a driver that is new enough, as on today's machines.
    assert found["cudaRuntimeGetVersion"] == 12040
    assert found["cudaDriverGetVersion"] == found["cuDriverGetVersion"] == 13000
    assert found["nvmlSystemGetCudaDriverVersion_v2"] == 13000


def test_the_driver_is_initialized_by_a_call_and_then_needs_a_context() -> None:
    found = driven(
        """
seen["before"] = [call("cuDeviceGetCount", byref(c_int())), alloc()[0]]
call("cuInit", 0)
seen["initialized"] = [call("cuDeviceGetCount", byref(c_int())), alloc()[0]]
current = c_void_p(1)
seen["current"] = [call("cuCtxGetCurrent", byref(current)), current.value]
seen["not retained"] = call("cuCtxPushCurrent_v2", c_void_p(0xC000))
state = c_int()
def active():
    call("cuDevicePrimaryCtxGetState", 0, byref(c_int()), byref(state))
    return state.value
seen["active"] = [active()]
context()
seen["active"].append(active())
seen["in a context"] = alloc()[0]
"""
    )
    assert found == {
        "before": [3, 3],
        "initialized": [0, 201],
        "current": [0, None],
        "not retained": 201,
        "active": [0, 1],
        "in a context": 0,
    }


def test_the_runtime_makes_a_context_by_itself() -> None:
    found = driven("gpu.null_cudaSetDevice(0)\nseen['alloc'] = alloc()[0]\n")
    assert found == {"alloc": 0}


def test_what_a_context_holds_goes_with_it() -> None:
    found = driven(
        """
context(1)
current = c_void_p()
alloc()
made("cuEventCreate", 0)
made("cuStreamCreate", 0)
call("cuMemCreate", byref(U()), c_size_t(2 << 20), None, U(0))
seen["held"] = outstanding()
context(0)
kept = alloc()[1]
seen["released"] = [call("cuDevicePrimaryCtxRelease_v2", 1) for _ in range(2)]
seen["left"] = outstanding()
seen["still there"] = call("cuMemFree_v2", kept)
""",
        count=2,
    )
    assert dict(zip(KINDS, found["held"], strict=True)) == {
        **dict.fromkeys(KINDS, 0),
        **{"segments": 1, "memory": 1, "events": 1, "streams": 1, "contexts": 1},
        "bytes": 2 * MIB + 1,
    }
    assert found["released"] == [0, 201]
    assert dict(zip(KINDS, found["left"], strict=True)) == {
        **dict.fromkeys(KINDS, 0),
        **{"segments": 1, "memory": 1, "contexts": 1, "bytes": 2 * MIB + 1},
        "abandoned": 2,
    }
    assert found["still there"] == 0


def test_a_forked_child_cannot_use_the_driver() -> None:
    found = driven(
        """
import os
context()
child = os.fork()
if child == 0:
    os._exit(alloc()[0])
seen["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
    )
    assert found == {"child": 3}


def test_wrong_handles_are_errors() -> None:
    found = driven(
        """
context()
stream, event = made("cuStreamCreate", 1), made("cuEventCreate", 0)
for name, handle in (("cuStreamDestroy_v2", stream), ("cuEventDestroy_v2", event)):
    seen[name] = [call(name, handle), call(name, handle)]
seen["gone"] = [call("cuEventRecord", event, None), call("cuEventQuery", event),
                call("cuEventSynchronize", event)]
address = alloc()[1]
seen["sets"] = [call("cuMemsetD8Async", U(address.value + at), 0, c_size_t(1), None)
                for at in (0, 2 << 20)]
seen["empty"] = call("cuMemAlloc_v2", byref(address), c_size_t(0))
"""
    )
    assert found == {
        "cuStreamDestroy_v2": [0, 400],
        "cuEventDestroy_v2": [0, 400],
        "gone": [400, 400, 400],
        "sets": [0, 1],
        "empty": 1,
    }


def test_reserved_addresses_are_memory_once_they_are_mapped() -> None:
    found = driven(
        """
context()
address, piece, flags = U(), U(), U()
call("cuMemAddressReserve", byref(address), c_size_t(4 << 20), c_size_t(0), U(0), U(0))
call("cuMemCreate", byref(piece), c_size_t(2 << 20), None, U(0))
def states():
    places = U(address.value), U(address.value + (2 << 20))
    ranges = [call("cuMemGetAddressRange_v2", None, None, place) for place in places]
    return ranges + [call("cuMemsetD8_v2", place, 0, c_size_t(1)) for place in places]
def access(device):
    place = (c_int * 2)(1, device)
    return call("cuMemGetAccess", byref(flags), place, address), flags.value
seen["reserved"] = states()
call("cuMemMap", address, c_size_t(2 << 20), c_size_t(0), piece, U(0))
seen["mapped"] = states()
call("cuMemSetAccess", address, c_size_t(2 << 20), (c_int * 3)(1, 1, 3), c_size_t(1))
seen["access"] = [access(0), access(1)]
call("cuMemSetAccess", address, c_size_t(2 << 20), (c_int * 3)(1, 0, 3), c_size_t(1))
seen["accessible"] = states()
""",
        count=2,
    )
    assert found == {
        "reserved": [500, 500, 1, 1],
        "mapped": [500, 500, 1, 1],
        "access": [[0, 0], [0, 3]],
        "accessible": [0, 500, 0, 1],
    }


def test_the_work_of_a_held_stream_ends_when_it_is_released_or_waited_for() -> None:
    found = driven(
        """
context()
side, other = made("cuStreamCreate", 1), made("cuStreamCreate", 0)
def recorded(stream):
    event = made("cuEventCreate", 0)
    call("cuEventRecord", event, stream)
    return event
def states(*events):
    return [call("cuEventQuery", event) for event in events]
def hold(stream, held):
    gpu.null_hold(stream, 0, held)
before = recorded(side)
hold(side, 1)
events = [before, recorded(side), recorded(other), recorded(None)]
seen["held"] = states(*events), call("cuStreamQuery", side), call("cuStreamQuery", other)
hold(side, 0)
seen["released"] = states(*events), call("cuStreamQuery", side)
hold(side, 1)
first, second = recorded(side), recorded(side)
call("cuEventSynchronize", first)
seen["waited for"] = states(first, second)
call("cuCtxSynchronize")
seen["all waited for"] = states(first, second)
third = recorded(side)
call("cuStreamSynchronize", side)
seen["stream waited for"] = states(third)
hold(side, 0)
hold(other, 1)
seen["default"] = states(recorded(None), recorded(c_void_p(1)), recorded(side))
"""
    )
    ready, not_ready = 0, 600
    assert found == {
        "held": [[ready, not_ready, ready, ready], not_ready, ready],
        "released": [[ready] * 4, ready],
        "waited for": [ready, not_ready],
        "all waited for": [ready, ready],
        "stream waited for": [ready],
        "default": [not_ready, not_ready, ready],  # it waits for streams that are not non-blocking
    }


LATE = """
context()
side = made("cuStreamCreate", 1)
events = [made("cuEventCreate", 2) for _ in range(2)]
def launch():
    gpu.null_cudaGraphLaunch(None, side)
def record():
    for event in events:
        call("cuEventRecord", event, side)
def states():
    "The states of both events, a kernel apart from when they were last asked for."
    launch()
    return [call("cuEventQuery", event) for event in events]
record()
seen["recorded"] = states(), states()
"""
READY, NOT_READY = 0, 600


@pytest.mark.parametrize(
    "launch", ["cudaGraphLaunch(None, ", "cuLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, "]
)
@pytest.mark.parametrize(
    "wait",
    [
        'call("cuEventSynchronize", events[0])',
        'call("cuStreamSynchronize", c_void_p(1))',
        'call("cuCtxSynchronize")',
        "gpu.null_cudaDeviceSynchronize()",
        "gpu.null_cudaStreamSynchronize(side)",
    ],
)
def test_late_events_are_ready_after_any_wait(wait: str, launch: str) -> None:
    found = driven(
        LATE.replace("cudaGraphLaunch(None, ", launch)
        + f"""
{wait}
seen["waited"] = states(), states()
record()
seen["again"] = states()
""",
        late_events=1,
    )
    assert found == {
        "recorded": [[NOT_READY] * 2] * 2,
        "waited": [[READY] * 2] * 2,
        "again": [NOT_READY] * 2,
    }


def test_a_program_that_polls_a_late_event_goes_on() -> None:
    found = driven(
        LATE
        + """
seen["polled"] = [call("cuEventQuery", events[0]) for _ in range(2)]
seen["then"] = states()
""",
        late_events=1,
    )
    assert found["polled"] == [READY, READY]  # it was asked before, with no kernel in between
    assert found["then"] == [READY, NOT_READY]


def test_events_are_ready_at_once_unless_they_are_late() -> None:
    assert driven(LATE)["recorded"] == [[READY] * 2] * 2


def test_a_block_freed_on_a_busy_stream_is_not_used_any_more() -> None:
    found = driven(
        """
context()
stream, pool, value, address = made("cuStreamCreate", 1), c_void_p(), c_uint64(), U()
properties = (ctypes.c_char * 88)()
ctypes.memmove(properties, (c_int * 4)(1, 0, 1, 0), 16)
call("cuMemPoolCreate", byref(pool), properties)
call("cuMemAllocFromPoolAsync", byref(address), c_size_t(1 << 20), pool, stream)
def used():
    call("cuMemPoolGetAttribute", pool, 7, byref(value))
    return value.value
gpu.null_hold(stream, 0, 1)
seen["frees"] = [call("cuMemFreeAsync", address, stream) for _ in range(2)]
seen["used"] = [used()]
gpu.null_hold(stream, 0, 0)
seen["used"].append(used())
call("cuMemAllocFromPoolAsync", byref(address), c_size_t(1 << 20), pool, stream)
call("cuStreamBeginCapture_v2", stream, 0)
seen["captured"] = [call("cuMemFreeAsync", address, stream)]
seen["captured"].append(call("cuStreamEndCapture", stream, byref(c_void_p())))
seen["destroyed"] = [call("cuMemPoolDestroy", pool), call("cuMemPoolDestroy", pool)]
seen["kept"] = outstanding()[5]
seen["last"] = [call("cuMemFreeAsync", address, stream), *outstanding()[4:6], outstanding()[9]]
""",
        context=0,
    )
    assert found == {
        "frees": [0, 1],
        "used": [0, 0],
        "captured": [1, 0],
        "destroyed": [0, 1],
        "kept": 1,
        "last": [0, 0, 0, 0],
    }


def test_an_event_of_a_capture_cannot_be_queried() -> None:
    found = driven(
        """
context()
stream, event = made("cuStreamCreate", 1), made("cuEventCreate", 0)
call("cuStreamBeginCapture_v2", stream, 0)
call("cuEventRecord", event, stream)
seen["captured"] = [call("cuEventQuery", event), call("cuEventSynchronize", event)]
call("cuStreamEndCapture", stream, byref(c_void_p()))
seen["ended"] = call("cuEventQuery", event)
call("cuEventRecord", event, stream)
seen["recorded again"] = call("cuEventQuery", event)
"""
    )
    assert found == {"captured": [907, 907], "ended": 907, "recorded again": 0}


def test_the_driver_and_the_runtime_name_errors_differently() -> None:
    found = seen(
        """
name, text = c_char_p(), c_char_p()
gpu.null_cudaGetErrorName.restype = c_char_p
for number in (2, 12345):
    known = [gpu.null_cuGetErrorName(number, byref(name)),
             gpu.null_cuGetErrorString(number, byref(text))]
    texts = [value and value.decode() for value in (name.value, text.value)]
    seen[number] = [*known, *texts, gpu.null_cudaGetErrorName(number).decode()]
"""
    )
    assert found == {
        "2": [0, 0, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "cudaErrorMemoryAllocation"],
        "12345": [1, 1, None, None, "cudaErrorUnknown"],
    }


REPORTED = """
import atexit, ctypes, sys
cuda, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
address, context = ctypes.c_ulonglong(), ctypes.c_void_p()
def at_exit(number):
    sys.stdout.write(f"{cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(5))}\\n")
atexit.register(at_exit, 0)
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxPushCurrent_v2(context)
"""


def test_a_process_reports_what_it_leaves_behind(tmp_path: Path) -> None:
    path = tmp_path / "report"
    done = subprocess.run(
        [sys.executable, "-c", REPORTED],
        env=environment({"report": path}),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert {kind: count for kind, count in reported(path).items() if count} == {
        "segments": 1,
        "contexts": 1,
        "bytes": 5,
    }


DEINITIALIZED = """
#include <cstdio>
#include <cstdlib>
extern "C" int cuInit(unsigned);
extern "C" int cuDeviceGetCount(int*);
int count;
void print() { std::printf("%d\\n", cuDeviceGetCount(&count)); }
int main() {
  std::atexit(print);
  cuInit(0);
  std::atexit(print);
}
"""


def test_the_driver_is_gone_for_what_runs_at_exit_after_it(tmp_path: Path) -> None:
    source, program = tmp_path / "main.cpp", tmp_path / "main"
    source.write_text(DEINITIALIZED)
    make_driver(tmp_path)
    command = ["g++", str(source), "-o", str(program), str(tmp_path / stubs.DRIVER)]
    linked = [f"-Wl,-rpath,{tmp_path}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run([*command, *linked], check=True)
    done = subprocess.run([str(program)], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n4\n", "")
