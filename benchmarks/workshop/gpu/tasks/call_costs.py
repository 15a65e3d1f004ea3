# SPDX-License-Identifier: Apache-2.0
"""Task: what single calls of the driver cost, by bytes, by number of live objects, and under load.

Each cost is a row: the call, what the case was, the number of repeats, and the least, the quartiles
and the largest of the seconds. They include what a call from Python costs, which the row of
`cuDriverGetVersion` shows.
"""

import argparse
import ctypes
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.workshop.gpu import task
from benchmarks.workshop.gpu.driver.cuda import GIB, KIB, MIB, Cuda
from benchmarks.workshop.gpu.driver.pools import Pool

SEGMENTS = (512, 4 * KIB, 64 * KIB, 512 * KIB, MIB, 2 * MIB, 20 * MIB, 128 * MIB, GIB, 8 * GIB)
PIECES = (2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, GIB, 8 * GIB)
BLOCKS = (512, 64 * KIB, MIB, 2 * MIB, 20 * MIB, 128 * MIB, GIB)
PAGE = 2 * MIB
_PIECE = (1, 0, 1, 0)


class Clock:
    """Times calls, and keeps their seconds by call and case."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.seconds: dict[tuple[str, str, int], list[float]] = {}

    def time(self, call: str, *arguments: Any, case: str = "", size: int = 0) -> None:
        """Make one call; raises RuntimeError if it fails."""
        function = getattr(self.cuda.library, call)
        wide = [ctypes.c_uint64(one) if isinstance(one, int) else one for one in arguments]
        begun = time.perf_counter_ns()
        status = function(*wide)
        took = time.perf_counter_ns() - begun
        if status:
            raise RuntimeError(f"{call}: error {status}")
        self.seconds.setdefault((call, case, size), []).append(took * 1e-9)

    def handle(self, call: str, *arguments: Any, case: str = "", size: int = 0) -> int:
        """The same for a call that writes a handle or an address to its first argument."""
        value = ctypes.c_uint64()
        self.time(call, ctypes.byref(value), *arguments, case=case, size=size)
        return value.value

    def rows(self) -> list[dict[str, Any]]:
        """The costs, one row for each call, case and size."""
        return [
            {"call": call, "case": case, "bytes": size, **summary(seconds)}
            for (call, case, size), seconds in self.seconds.items()
        ]


def summary(seconds: list[float]) -> dict[str, float | int]:
    """The number of values, the least, the quartiles and the largest."""
    low, middle, high = (
        statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    )
    return {
        "repeats": len(seconds),
        "least": min(seconds),
        "quartile_1": low,
        "median": middle,
        "quartile_3": high,
        "most": max(seconds),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All costs; a part that fails, or comes after the time limit, is named."""
    begun = time.monotonic()
    cuda = Cuda()
    clock, failures = Clock(cuda), dict[str, str]()
    start = time.perf_counter()
    cuda.open()
    opened = time.perf_counter() - start
    cuda.load_kernels()
    for part in PARTS:
        if time.monotonic() - begun > arguments.seconds:
            failures[part.__name__] = "no time left"
            continue
        try:
            part(clock, 3 if arguments.dry else arguments.repeats)
        except RuntimeError as error:
            failures[part.__name__] = str(error)
        print(f"{time.monotonic() - begun:.1f} s: {part.__name__}", flush=True)
    return {
        "unit": "seconds",
        "opening_seconds": opened,
        "costs": clock.rows(),
        "failures": failures,
    }


def small_calls(clock: Clock, repeats: int) -> None:
    """Calls that allocate nothing, each 20 times as often."""
    cuda, out = clock.cuda, ctypes.byref(ctypes.c_uint64())
    stream, event, address = cuda.stream(), cuda.handle("cuEventCreate", 2), cuda.alloc(MIB)
    for _ in range(20 * repeats):
        clock.time("cuDriverGetVersion", out)
        clock.time("cuMemGetInfo_v2", out, ctypes.byref(ctypes.c_uint64()))
        clock.time("cuPointerGetAttribute", out, 2, address)
        clock.time("cuEventRecord", event, stream)
        cuda.need("cuStreamSynchronize", stream)
        clock.time("cuEventQuery", event)
        clock.time("cuEventSynchronize", event, case="ready")
        clock.time("cuStreamWaitEvent", stream, event, 0)
        clock.time("cuStreamQuery", stream)
        clock.time("cuStreamSynchronize", stream, case="idle")
        clock.time("cuCtxSynchronize", case="idle")
        made = clock.handle("cuEventCreate", 2)
        clock.time("cuEventDestroy_v2", made)
        clock.time("cuMemsetD8Async", address, 0, 512, stream, size=512)
    for _ in range(repeats):
        clock.time("cuStreamDestroy_v2", clock.handle("cuStreamCreate", 1))


def segments(clock: Clock, repeats: int) -> None:
    """cuMemAlloc and cuMemFree by bytes."""
    for size, _ in itertools.product(SEGMENTS, range(repeats)):
        address = clock.handle("cuMemAlloc_v2", size, size=size)
        clock.time("cuMemFree_v2", address, size=size)


def live_segments(clock: Clock, repeats: int) -> None:
    """The same with thousands of live allocations of 2 MiB, and of 512 bytes."""
    for kind, sizes in ((PAGE, (512, PAGE, 20 * MIB, GIB)), (512, (512, PAGE))):
        live: list[int] = []
        for number in (0, 1000, 3000, 10000):
            grown = f"the live allocations of {kind} bytes"
            while len(live) < number:
                live.append(clock.handle("cuMemAlloc_v2", kind, case=f"{grown} up to {number}"))
            case = f"{number} live allocations of {kind} bytes"
            for size, _ in itertools.product(sizes, range(repeats)):
                address = clock.handle("cuMemAlloc_v2", size, case=case, size=size)
                clock.time("cuMemFree_v2", address, case=case, size=size)
        for address in live:
            clock.time("cuMemFree_v2", address, case="all live allocations", size=kind)


def pages(clock: Clock, repeats: int) -> None:
    """The calls of virtual memory one by one, and a second mapping of a piece, by bytes."""
    access, piece_of = (ctypes.c_int * 3)(1, 0, 3), (ctypes.c_int * 8)(*_PIECE)
    for size, _ in itertools.product(PIECES, range(repeats)):
        at = clock.handle("cuMemAddressReserve", 2 * size, 0, 0, 0, size=2 * size)
        piece = clock.handle("cuMemCreate", size, piece_of, 0, size=size)
        for address, case in ((at, ""), (at + size, "second mapping")):
            clock.time("cuMemMap", address, size, 0, piece, 0, size=size, case=case)
            clock.time("cuMemSetAccess", address, size, access, 1, size=size, case=case)
        clock.time("cuMemUnmap", at + size, size, size=size, case="second mapping")
        clock.time("cuMemUnmap", at, size, size=size)
        clock.time("cuMemRelease", piece, size=size)
        clock.time("cuMemAddressFree", at, 2 * size, size=2 * size)


def many_pages(clock: Clock, repeats: int) -> None:
    """1 GiB in pages of 2 MiB: one call for each page, and one call for many pages."""
    access, piece_of = (ctypes.c_int * 3)(1, 0, 3), (ctypes.c_int * 8)(*_PIECE)
    number = 512
    size = number * PAGE
    at = clock.cuda.handle("cuMemAddressReserve", size, 0, 0, 0)
    for together in (1, 8, 64, 512):
        case = f"{together} pages of 2 MiB in a call"
        for _ in range(max(1, repeats // 5)):
            for page in range(number):
                piece = clock.handle("cuMemCreate", PAGE, piece_of, 0, case="of 512", size=PAGE)
                where = at + page * PAGE
                clock.time("cuMemMap", where, PAGE, 0, piece, 0, case="of 512", size=PAGE)
                clock.time("cuMemRelease", piece, case="of 512, mapped", size=PAGE)
            length = together * PAGE
            for where in range(at, at + size, length):
                clock.time("cuMemSetAccess", where, length, access, 1, case=case, size=length)
            for where in range(at, at + size, length):
                clock.time("cuMemUnmap", where, length, case=case, size=length)
    clock.cuda.need("cuMemAddressFree", at, size)


def live_pages(clock: Clock, repeats: int) -> None:
    """A page more, with thousands of live pages."""
    access, piece_of = (ctypes.c_int * 3)(1, 0, 3), (ctypes.c_int * 8)(*_PIECE)
    most, live = 10000, 0
    at = clock.cuda.handle("cuMemAddressReserve", (most + 1) * PAGE, 0, 0, 0)

    def add(page: int, case: str) -> None:
        piece = clock.handle("cuMemCreate", PAGE, piece_of, 0, case=case, size=PAGE)
        clock.time("cuMemMap", at + page * PAGE, PAGE, 0, piece, 0, case=case, size=PAGE)
        clock.time("cuMemSetAccess", at + page * PAGE, PAGE, access, 1, case=case, size=PAGE)
        clock.cuda.need("cuMemRelease", piece)

    for number in (0, 1000, 3000, most):
        for page in range(live, number):
            add(page, f"the live pages up to {number}")
        live = number
        for _ in range(repeats):
            add(live, f"{number} live pages")
            case = f"{number} live pages"
            clock.time("cuMemUnmap", at + live * PAGE, PAGE, case=case, size=PAGE)
    clock.time("cuMemUnmap", at, most * PAGE, case="10000 pages in a call", size=most * PAGE)
    clock.cuda.need("cuMemAddressFree", at, (most + 1) * PAGE)


def pool_calls(clock: Clock, repeats: int) -> None:
    """Allocations from a pool that has the bytes, and from one that must grow; trims."""
    stream = clock.cuda.stream()
    for size in BLOCKS:
        pool = Pool(clock.cuda, threshold=2**64 - 1)
        for _ in range(repeats):
            address = clock.handle(
                "cuMemAllocFromPoolAsync", size, pool.handle, stream, case="miss", size=size
            )
            clock.time("cuMemFreeAsync", address, stream, case="miss", size=size)
            clock.time("cuStreamSynchronize", stream, case="after cuMemFreeAsync", size=size)
            address = clock.handle(
                "cuMemAllocFromPoolAsync", size, pool.handle, stream, case="hit", size=size
            )
            clock.time("cuMemFreeAsync", address, stream, case="hit", size=size)
            clock.cuda.need("cuStreamSynchronize", stream)
            clock.time("cuMemPoolTrimTo", pool.handle, 0, case="to 0", size=size)
        clock.cuda.need("cuMemPoolDestroy", pool.handle)
    for _ in range(repeats):
        pool = Pool(clock.cuda)
        clock.time("cuMemPoolDestroy", pool.handle)
    pool = Pool(clock.cuda, threshold=2**64 - 1)
    for size in (MIB, 20 * MIB):
        live = []
        for _ in range(1000):
            live.append(
                clock.handle(
                    "cuMemAllocFromPoolAsync",
                    *(size, pool.handle, stream),
                    case="1000 live blocks",
                    size=size,
                )
            )
        for address in live:
            clock.time("cuMemFreeAsync", address, stream, case="1000 live blocks", size=size)
        clock.cuda.need("cuStreamSynchronize", stream)


def under_load(clock: Clock, repeats: int) -> None:
    """Calls while a kernel of 5 ms runs on another stream: those that wait take that long."""
    cuda, nanoseconds = clock.cuda, ctypes.c_uint64(5_000_000)
    stream, out = cuda.stream(), ctypes.byref(ctypes.c_uint64())
    other = cuda.stream()
    access, piece_of = (ctypes.c_int * 3)(1, 0, 3), (ctypes.c_int * 8)(*_PIECE)
    pool = Pool(cuda, threshold=2**64 - 1)
    case = "a kernel of 5 ms runs"
    for _ in range(repeats):
        for size in (512, 20 * MIB):
            for freed_while_busy in (True, False):
                _spin(cuda, stream, nanoseconds)
                address = clock.handle("cuMemAlloc_v2", size, case=case, size=size)
                if freed_while_busy:
                    clock.time("cuMemFree_v2", address, case=case, size=size)
                cuda.need("cuCtxSynchronize")
                if not freed_while_busy:
                    cuda.need("cuMemFree_v2", address)
        _spin(cuda, stream, nanoseconds)
        at = cuda.handle("cuMemAddressReserve", PAGE, 0, 0, 0)
        piece = clock.handle("cuMemCreate", PAGE, piece_of, 0, case=case, size=PAGE)
        clock.time("cuMemMap", at, PAGE, 0, piece, 0, case=case, size=PAGE)
        clock.time("cuMemSetAccess", at, PAGE, access, 1, case=case, size=PAGE)
        clock.time("cuMemGetInfo_v2", out, ctypes.byref(ctypes.c_uint64()), case=case)
        cuda.need("cuCtxSynchronize")
        _spin(cuda, stream, nanoseconds)
        clock.time("cuMemUnmap", at, PAGE, case=case, size=PAGE)
        clock.time("cuMemRelease", piece, case=case, size=PAGE)
        cuda.need("cuCtxSynchronize")
        cuda.need("cuMemAddressFree", at, PAGE)
        _spin(cuda, stream, nanoseconds)
        address = clock.handle(
            "cuMemAllocFromPoolAsync", MIB, pool.handle, other, case=case, size=MIB
        )
        clock.time("cuMemFreeAsync", address, other, case=case, size=MIB)
        clock.time("cuMemPoolTrimTo", pool.handle, 0, case=case, size=MIB)
        cuda.need("cuCtxSynchronize")


def _spin(cuda: Cuda, stream: int, nanoseconds: ctypes.c_uint64) -> None:
    if status := cuda.launch("spin", stream, 1, 1, nanoseconds):
        raise RuntimeError(f"spin: error {status}")


PARTS: tuple[Callable[[Clock, int], None], ...] = (
    *(small_calls, segments, pages, pool_calls, under_load),
    *(live_segments, many_pages, live_pages),
)

if __name__ == "__main__":
    parser = task.new_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="of each call")
    parser.add_argument("--seconds", type=float, default=75, help="begin no part after this time")
    task.finish(parser.parse_args(), measure)
