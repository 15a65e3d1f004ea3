# SPDX-License-Identifier: Apache-2.0
"""Scenarios: initialization, contexts and their bytes, attributes of the device, errors."""

import ctypes
import os
import subprocess
import sys

from benchmarks.workshop.gpu.driver.cuda import GIB, MIB, Cuda, line

_LAST_ATTRIBUTE = 160


def initialization(cuda: Cuda) -> None:
    """Calls before cuInit, without a context, and with wrong ones."""
    out, count = ctypes.byref(ctypes.c_uint64()), ctypes.c_int()
    line("version before", cuda.call("cuDriverGetVersion", out))
    line("count before", cuda.call("cuDeviceGetCount", ctypes.byref(count)))
    line("alloc before", cuda.call("cuMemAlloc_v2", out, MIB))
    line("init with flags", cuda.call("cuInit", 5))
    line("init", cuda.call("cuInit", 0))
    line("count", cuda.call("cuDeviceGetCount", ctypes.byref(count)), raw=count.value)
    line("device 99", cuda.call("cuDeviceGet", out, 99))
    line("context of device 99", cuda.call("cuDevicePrimaryCtxRetain", out, 99))
    for name, arguments in (
        ("cuMemAlloc_v2", (out, MIB)),
        ("cuMemFree_v2", (0x1000,)),
        ("cuMemGetInfo_v2", (out, ctypes.byref(ctypes.c_uint64()))),
        ("cuMemAllocAsync", (out, MIB, 0)),
        ("cuMemFreeAsync", (0x1000, 0)),
        ("cuMemCreate", (out, 2 * MIB, (ctypes.c_int * 8)(1, 0, 1, 0), 0)),
        ("cuMemAddressReserve", (out, 2 * MIB, 0, 0, 0)),
        ("cuStreamCreate", (out, 1)),
        ("cuEventCreate", (out, 0)),
        ("cuStreamSynchronize", (0,)),
        ("cuStreamQuery", (0,)),
        ("cuCtxSynchronize", ()),
        ("cuCtxPopCurrent_v2", (out,)),
        ("cuCtxGetDevice", (out,)),
        ("cuMemHostAlloc", (out, 4096, 0)),
        ("cuPointerGetAttribute", (out, 2, 0x1000)),
        ("cuMemGetAddressRange_v2", (out, out, 0x1000)),
        ("cuDeviceGetDefaultMemPool", (out, 0)),
    ):
        line(f"{name} without a context", cuda.call(name, *arguments))
    current = ctypes.c_uint64(1)
    line(
        "current",
        cuda.call("cuCtxGetCurrent", ctypes.byref(current)),
        value=current.value,
    )
    flags, active = ctypes.c_uint(), ctypes.c_int()
    state = (0, ctypes.byref(flags), ctypes.byref(active))
    cuda.call("cuDevicePrimaryCtxGetState", *state)
    line("active before", value=active.value)
    line("release before", cuda.call("cuDevicePrimaryCtxRelease_v2", 0))
    context = cuda.handle("cuDevicePrimaryCtxRetain", 0)
    cuda.call("cuDevicePrimaryCtxGetState", *state)
    line("active", value=active.value)
    line("again", same=cuda.handle("cuDevicePrimaryCtxRetain", 0) == context)
    line("push", cuda.call("cuCtxPushCurrent_v2", context))
    line("alloc", cuda.number("cuMemAlloc_v2", MIB)[0])
    popped = ctypes.c_uint64()
    line("pop", cuda.call("cuCtxPopCurrent_v2", ctypes.byref(popped)), same=popped.value == context)
    line("pop again", cuda.call("cuCtxPopCurrent_v2", ctypes.byref(popped)))
    line("set to none", cuda.call("cuCtxSetCurrent", 0))
    line("set", cuda.call("cuCtxSetCurrent", context))
    line("release", cuda.call("cuDevicePrimaryCtxRelease_v2", 0))
    line("alloc with one retained", cuda.number("cuMemAlloc_v2", MIB)[0])
    line("release the last", cuda.call("cuDevicePrimaryCtxRelease_v2", 0))
    line("release once more", cuda.call("cuDevicePrimaryCtxRelease_v2", 0))


def wrong_context(cuda: Cuda) -> None:
    """A handle that is no context."""
    cuda.need("cuInit", 0)
    line("push", cuda.call("cuCtxPushCurrent_v2", 0xC000))


def wrong_context_set(cuda: Cuda) -> None:
    """A handle that is no context, for cuCtxSetCurrent."""
    cuda.need("cuInit", 0)
    line("set", cuda.call("cuCtxSetCurrent", 0xC000))


def push_of_none(cuda: Cuda) -> None:
    """A push of no context."""
    cuda.need("cuInit", 0)
    line("push", cuda.call("cuCtxPushCurrent_v2", 0))


def released_context(cuda: Cuda) -> None:
    """What a context held when it is released and retained again."""
    cuda.open()
    address = cuda.alloc(100 * MIB)
    piece = cuda.handle("cuMemCreate", 100 * MIB, (ctypes.c_int * 8)(1, 0, 1, 0), 0)
    pooled = cuda.handle("cuMemAllocAsync", 100 * MIB, 0)
    held = cuda.free_bytes()
    line("release", cuda.call("cuDevicePrimaryCtxRelease_v2", 0))
    line("alloc after it", cuda.number("cuMemAlloc_v2", MIB)[0])
    cuda.open()
    line("returned", more=(cuda.free_bytes() - held) // MIB)
    line("free of the segment", cuda.call("cuMemFree_v2", address))
    line("release of the piece", cuda.call("cuMemRelease", piece))
    line("free of the pool's block", cuda.call("cuMemFreeAsync", pooled, 0))


def forked(cuda: Cuda) -> None:
    """The driver in a forked child."""
    cuda.open()
    child = os.fork()
    if child == 0:
        status = cuda.number("cuMemAlloc_v2", MIB)[0]
        os._exit(min(status, 250))
    line("alloc in a child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    line("alloc in the parent", cuda.number("cuMemAlloc_v2", MIB)[0])


def bytes_of_a_context(cuda: Cuda) -> None:
    """What contexts of other processes take, with and without kernels."""
    cuda.open()
    total = cuda.handle("cuDeviceTotalMem_v2", 0)
    free, reported = ctypes.c_uint64(), ctypes.c_uint64()
    cuda.need("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(reported))
    line("free in the only process", used=total - free.value)
    line("total", same=reported.value == total, raw=total)
    for what in ("context", "kernels", "pool"):
        before = cuda.free_bytes()
        program = "\n".join(
            (
                "from benchmarks.workshop.gpu.driver.cuda import Cuda",
                "cuda = Cuda()",
                "cuda.open()",
                "cuda.load_kernels()" if what == "kernels" else "",
                "cuda.handle('cuMemAllocAsync', 1, 0)" if what == "pool" else "",
                "print(cuda.free_bytes(), flush=True)",
                "input()",
            )
        )
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        seen = int(child.stdout.readline())
        taken = before - cuda.free_bytes()
        child.communicate("\n")
        line(f"another process with a {what}", taken=taken, sees_less=before - seen)
        line(f"another process with a {what}, ended", left=before - cuda.free_bytes())
    before = cuda.free_bytes()
    cuda.load_kernels()
    line("kernels", taken=before - cuda.free_bytes())
    for flags in (0, 1):
        before = cuda.free_bytes()
        for _ in range(32):
            cuda.stream(flags)
        line(f"32 streams, flags {flags}", taken=before - cuda.free_bytes())
    before = cuda.free_bytes()
    for _ in range(1000):
        cuda.handle("cuEventCreate", 2)
    line("1000 events", taken=before - cuda.free_bytes())
    before = cuda.free_bytes()
    cuda.handle("cuMemHostAlloc", GIB, 0)
    line("1 GiB of pinned memory", taken=before - cuda.free_bytes())


def device(cuda: Cuda) -> None:
    """The device's name, bytes, attributes and limits."""
    cuda.open()
    name = ctypes.create_string_buffer(256)
    line("name", cuda.call("cuDeviceGetName", name, 256, 0), value=name.value.decode())
    line("bytes", value=cuda.handle("cuDeviceTotalMem_v2", 0))
    line("version", value=cuda.handle("cuDriverGetVersion"))
    line("peer of itself", cuda.call("cuDeviceCanAccessPeer", ctypes.byref(ctypes.c_int()), 0, 0))
    for number in range(_LAST_ATTRIBUTE):
        value = ctypes.c_int(-7)
        status = cuda.call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        line(f"attribute {number}", status, value=value.value)
    for limit in range(9):
        status, size = cuda.number("cuCtxGetLimit", limit)
        line(f"limit {limit}", status, value=size)
    low, high = ctypes.c_int(), ctypes.c_int()
    status = cuda.call("cuCtxGetStreamPriorityRange", ctypes.byref(low), ctypes.byref(high))
    line("priorities", status, value=[low.value, high.value])


def error_names(cuda: Cuda) -> None:
    """The names and texts of errors."""
    for number in (*range(1000), 12345):
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        status = cuda.call("cuGetErrorName", number, ctypes.byref(name))
        cuda.call("cuGetErrorString", number, ctypes.byref(text))
        words = [one and one.decode() for one in (name.value, text.value)]
        if status == 0:
            line(f"error {number}", value=words)
    line("error 12345", status, value=words)


def illegal_address(cuda: Cuda) -> None:
    """What calls return after a kernel wrote where no memory is. Says nothing on a null GPU."""
    cuda.open()
    cuda.load_kernels()
    if not cuda.real:
        return
    stream, event, address = cuda.stream(), cuda.handle("cuEventCreate", 0), cuda.alloc(MIB)
    line("launch", cuda.launch("poke", stream, 1, 1, ctypes.c_uint64(0x10)))
    line("synchronize", cuda.call("cuStreamSynchronize", stream))
    for name, arguments in (
        ("cuMemAlloc_v2", (ctypes.byref(ctypes.c_uint64()), MIB)),
        ("cuMemFree_v2", (address,)),
        ("cuMemGetInfo_v2", (ctypes.byref(ctypes.c_uint64()),) * 2),
        ("cuEventRecord", (event, stream)),
        ("cuEventQuery", (event,)),
        ("cuMemAllocAsync", (ctypes.byref(ctypes.c_uint64()), MIB, 0)),
        ("cuMemAddressReserve", (ctypes.byref(ctypes.c_uint64()), 2 * MIB, 0, 0, 0)),
        ("cuDevicePrimaryCtxRelease_v2", (0,)),
    ):
        line(name, cuda.call(name, *arguments))


SCENARIOS = (
    initialization,
    wrong_context,
    wrong_context_set,
    push_of_none,
    released_context,
    forked,
    bytes_of_a_context,
    device,
    error_names,
    illegal_address,
)
