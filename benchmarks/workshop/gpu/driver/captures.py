# SPDX-License-Identifier: Apache-2.0
"""Scenarios: which calls are legal while a stream is captured, by mode and thread."""

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator

from benchmarks.workshop.gpu.driver.cuda import MIB, Cuda, line
from benchmarks.workshop.gpu.driver.pools import Pool

MODES = ("global", "thread", "relaxed")
DESTROYS = "destroy of another stream"
_PAGE = 2 * MIB

Call = Callable[[], int]


class _Set:
    """What the calls of one capture use; all of it is made before the capture begins."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.stream, self.other = cuda, cuda.stream(), cuda.stream()
        self.blocking = cuda.stream(0)
        self.segment = cuda.alloc(MIB)
        self.pool = Pool(cuda, threshold=2**64 - 1)
        self.block = self.pool.alloc(MIB, self.stream)
        self.event, self.spare = (cuda.handle("cuEventCreate", 0) for _ in range(2))
        cuda.need("cuEventRecord", self.event, self.other)
        self.reserved = cuda.handle("cuMemAddressReserve", 2 * _PAGE, 0, 0, 0)
        self.piece = cuda.handle("cuMemCreate", _PAGE, (ctypes.c_int * 8)(1, 0, 1, 0), 0)
        self.mapped = cuda.handle("cuMemAddressReserve", _PAGE, 0, 0, 0)
        cuda.need("cuMemMap", self.mapped, _PAGE, 0, self.piece, 0)
        self.pinned = cuda.handle("cuMemHostAlloc", 4096, 0)
        self.word = ctypes.create_string_buffer(4096)
        cuda.need("cuCtxSynchronize")

    def close(self) -> None:
        """Give back what a capture can have left in any state."""
        cuda = self.cuda
        cuda.call("cuMemFreeAsync", self.block, self.other)
        cuda.call("cuCtxSynchronize")
        cuda.call("cuMemUnmap", self.mapped, _PAGE)
        cuda.call("cuMemUnmap", self.reserved, _PAGE)
        cuda.call("cuMemRelease", self.piece)
        cuda.call("cuMemAddressFree", self.mapped, _PAGE)
        cuda.call("cuMemAddressFree", self.reserved, 2 * _PAGE)
        cuda.call("cuMemFree_v2", self.segment)
        cuda.call("cuMemPoolDestroy", self.pool.handle)
        for stream in (self.stream, self.other, self.blocking):
            cuda.call("cuStreamDestroy_v2", stream)

    def calls(self) -> Iterator[tuple[str, Call]]:
        """Calls by name."""
        cuda, stream, other = self.cuda, self.stream, self.other
        out = ctypes.byref(ctypes.c_uint64())
        out2 = ctypes.byref(ctypes.c_uint64())
        pages = (ctypes.c_int * 8)(1, 0, 1, 0)
        access = (ctypes.c_int * 3)(1, 0, 3)
        table: tuple[tuple[str, str, tuple[object, ...]], ...] = (
            ("alloc", "cuMemAlloc_v2", (out, MIB)),
            ("free", "cuMemFree_v2", (self.segment,)),
            ("info", "cuMemGetInfo_v2", (out, out2)),
            ("address range", "cuMemGetAddressRange_v2", (out, out2, self.segment)),
            ("pointer attribute", "cuPointerGetAttribute", (out, 2, self.segment)),
            ("host alloc", "cuMemHostAlloc", (out, 4096, 0)),
            ("host free", "cuMemFreeHost", (self.pinned,)),
            ("granularity", "cuMemGetAllocationGranularity", (out, pages, 0)),
            ("reserve", "cuMemAddressReserve", (out, _PAGE, 0, 0, 0)),
            ("create", "cuMemCreate", (out, _PAGE, pages, 0)),
            ("map", "cuMemMap", (self.reserved, _PAGE, 0, self.piece, 0)),
            ("access", "cuMemSetAccess", (self.mapped, _PAGE, access, 1)),
            ("unmap", "cuMemUnmap", (self.mapped, _PAGE)),
            ("release", "cuMemRelease", (self.piece,)),
            ("unreserve", "cuMemAddressFree", (self.reserved, 2 * _PAGE)),
            ("async alloc, captured", "cuMemAllocAsync", (out, MIB, stream)),
            ("async alloc, other", "cuMemAllocAsync", (out, MIB, other)),
            ("async alloc, default", "cuMemAllocAsync", (out, MIB, 0)),
            (
                "alloc from pool, captured",
                "cuMemAllocFromPoolAsync",
                (out, MIB, self.pool.handle, stream),
            ),
            (
                "alloc from pool, other",
                "cuMemAllocFromPoolAsync",
                (out, MIB, self.pool.handle, other),
            ),
            ("async free of an older block, captured", "cuMemFreeAsync", (self.block, stream)),
            ("async free, other", "cuMemFreeAsync", (self.block, other)),
            ("pool attribute", "cuMemPoolGetAttribute", (self.pool.handle, 5, out)),
            ("set pool attribute", "cuMemPoolSetAttribute", (self.pool.handle, 4, out)),
            ("trim", "cuMemPoolTrimTo", (self.pool.handle, 0)),
            ("default pool", "cuDeviceGetDefaultMemPool", (out, 0)),
            ("new stream", "cuStreamCreate", (out, 1)),
            (DESTROYS, "cuStreamDestroy_v2", (other,)),
            ("new event", "cuEventCreate", (out, 0)),
            ("destroy of an event", "cuEventDestroy_v2", (self.spare,)),
            ("record, captured", "cuEventRecord", (self.spare, stream)),
            ("record, other", "cuEventRecord", (self.spare, other)),
            ("record, default", "cuEventRecord", (self.spare, 0)),
            ("wait, captured", "cuStreamWaitEvent", (stream, self.event, 0)),
            ("event query", "cuEventQuery", (self.event,)),
            ("event synchronize", "cuEventSynchronize", (self.event,)),
            ("stream query, captured", "cuStreamQuery", (stream,)),
            ("stream query, other", "cuStreamQuery", (other,)),
            ("stream query, blocking", "cuStreamQuery", (self.blocking,)),
            ("stream query, default", "cuStreamQuery", (0,)),
            ("stream synchronize, captured", "cuStreamSynchronize", (stream,)),
            ("stream synchronize, other", "cuStreamSynchronize", (other,)),
            ("stream synchronize, default", "cuStreamSynchronize", (0,)),
            ("context synchronize", "cuCtxSynchronize", ()),
            ("memset", "cuMemsetD8_v2", (self.segment, 0, 16)),
            ("async memset, captured", "cuMemsetD8Async", (self.segment, 0, 16, stream)),
            ("async memset, other", "cuMemsetD8Async", (self.segment, 0, 16, other)),
            ("async memset, default", "cuMemsetD8Async", (self.segment, 0, 16, 0)),
            ("async memset, per-thread", "cuMemsetD8Async", (self.segment, 0, 16, 2)),
            ("copy", "cuMemcpyDtoH_v2", (self.word, self.segment, 16)),
            (
                "async copy, captured",
                "cuMemcpyDtoHAsync_v2",
                (self.pinned, self.segment, 16, stream),
            ),
            ("async copy, other", "cuMemcpyDtoHAsync_v2", (self.pinned, self.segment, 16, other)),
            ("begin again", "cuStreamBeginCapture_v2", (stream, 0)),
            ("begin, default", "cuStreamBeginCapture_v2", (0, 0)),
            ("end, other", "cuStreamEndCapture", (other, out)),
            ("retain of the context", "cuDevicePrimaryCtxRetain", (out, 0)),
        )
        for name, function, arguments in table:
            yield name, functools.partial(cuda.call, function, *arguments)
        yield "kernel, captured", lambda: cuda.launch("spin", stream, 1, 1, ctypes.c_uint64(0))
        yield "kernel, other", lambda: cuda.launch("spin", other, 1, 1, ctypes.c_uint64(0))
        yield "kernel, default", lambda: cuda.launch("spin", 0, 1, 1, ctypes.c_uint64(0))
        yield "begin, other", self._begin_other
        yield "query of a captured event", lambda: self._captured_event("cuEventQuery")
        yield "synchronize of a captured event", lambda: self._captured_event("cuEventSynchronize")
        yield "alloc in relaxed mode", self._relaxed
        yield "alloc and free on the captured stream", self._both
        yield "a stream joins and does not return", self._joined
        yield "query of a joined stream", self._joined_query

    def _begin_other(self) -> int:
        """Only the thread that began this capture can end it."""
        status = self.cuda.call("cuStreamBeginCapture_v2", self.other, 0)
        self.cuda.call("cuStreamEndCapture", self.other, ctypes.byref(ctypes.c_uint64()))
        return status

    def _captured_event(self, function: str) -> int:
        self.cuda.call("cuEventRecord", self.spare, self.stream)
        return self.cuda.call(function, self.spare)

    def _relaxed(self) -> int:
        mode = ctypes.c_int(2)
        self.cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        status = self.cuda.number("cuMemAlloc_v2", MIB)[0]
        self.cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        return status

    def _both(self) -> int:
        status, address = self.cuda.number("cuMemAllocAsync", MIB, self.stream)
        return status or self.cuda.call("cuMemFreeAsync", address, self.stream)

    def _joined(self) -> int:
        self.cuda.call("cuEventRecord", self.spare, self.stream)
        return self.cuda.call("cuStreamWaitEvent", self.other, self.spare, 0)

    def _joined_query(self) -> int:
        self._joined()
        return self.cuda.call("cuStreamQuery", self.other)


def _captures(mode: int, elsewhere: bool) -> Callable[[Cuda], None]:
    """A scenario: each call in a capture of its own, from its thread or from another one."""

    def scenario(cuda: Cuda) -> None:
        context = cuda.open()
        cuda.load_kernels()
        cuda.call("cuMemAllocAsync", ctypes.byref(ctypes.c_uint64()), MIB, 0)  # loads what it needs
        whole = _Set(cuda)
        names = [name for name, _ in whole.calls()]
        whole.close()
        for name in names:
            used = _Set(cuda)
            call = dict(used.calls())[name]
            begun = cuda.call("cuStreamBeginCapture_v2", used.stream, mode)
            found: list[int] = []

            def other_thread(call: Call = call, found: list[int] = found) -> None:
                cuda.need("cuCtxSetCurrent", context)
                found.append(call())

            if elsewhere:
                thread = threading.Thread(target=other_thread)
                thread.start()
                thread.join()
            else:
                found.append(call())
            state = ctypes.c_int(-1)
            cuda.call("cuStreamIsCapturing", used.stream, ctypes.byref(state))
            graph = ctypes.c_uint64()
            ended = cuda.call("cuStreamEndCapture", used.stream, ctypes.byref(graph))
            line(name, found[0], begun=begun, state=state.value, ended=ended)
            for late in ("cuEventQuery", "cuEventSynchronize"):
                if name == "query of a captured event":
                    line(f"{name}: {late} at the end", cuda.call(late, used.spare))
            if name == DESTROYS:  # the driver need not check a handle that is gone
                used.other = cuda.stream()
            used.close()

    where = "another_thread" if elsewhere else "its_thread"
    scenario.__name__ = f"captures_{MODES[mode]}_{where}"
    return scenario


def ends(cuda: Cuda) -> None:
    """Captures that end where they did not begin."""
    context = cuda.open()
    out = ctypes.c_uint64()
    for mode, name in enumerate(MODES):
        stream = cuda.stream()
        end = ("cuStreamEndCapture", stream, ctypes.byref(out))
        line(f"{name}: end without a begin", cuda.call(*end))
        line(f"{name}: begin", cuda.call("cuStreamBeginCapture_v2", stream, mode))
        found: list[int] = []

        def ending(end: tuple[object, ...] = end, found: list[int] = found) -> None:
            cuda.need("cuCtxSetCurrent", context)
            found.append(cuda.call(*end))  # type: ignore[arg-type]

        thread = threading.Thread(target=ending)
        thread.start()
        thread.join()
        line(f"{name}: end in another thread", found[0])
        line(f"{name}: end in its thread", cuda.call(*end))
    stream = cuda.stream()
    cuda.call("cuStreamBeginCapture_v2", stream, 2)
    line("destroy of a captured stream", cuda.call("cuStreamDestroy_v2", stream))
    line("an unknown mode", cuda.call("cuStreamBeginCapture_v2", cuda.stream(), 7))


SCENARIOS = (
    *(_captures(mode, elsewhere) for mode in range(3) for elsewhere in (False, True)),
    ends,
)
