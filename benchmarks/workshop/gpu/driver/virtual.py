# SPDX-License-Identifier: Apache-2.0
"""Scenarios: CUDA's virtual memory: reservations, pieces, mappings, access."""

import ctypes
import itertools

from benchmarks.workshop.gpu.driver.cuda import GIB, KIB, MIB, Cuda, alignment, line

PAGE = 2 * MIB


def _properties(device: int = 0) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * 8)(1, 0, 1, device)  # pinned, no handle to share, on a device


def _access(device: int = 0, flags: int = 3) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * 3)(1, device, flags)


def create(cuda: Cuda, pages: int) -> int:
    """A piece of memory of so many pages."""
    return cuda.handle("cuMemCreate", pages * PAGE, _properties(), 0)


def reserve(cuda: Cuda, pages: int) -> int:
    """Addresses for so many pages."""
    return cuda.handle("cuMemAddressReserve", pages * PAGE, 0, 0, 0)


def pieces(cuda: Cuda) -> None:
    """The granularity, and which sizes can be created and what they take."""
    cuda.open()
    for option, name in ((0, "minimum"), (1, "recommended")):
        status, value = cuda.number("cuMemGetAllocationGranularity", _properties(), option)
        line(f"granularity, {name}", status, value=value)
    for size in (0, 1, 4 * KIB, 64 * KIB, MIB, PAGE, 3 * MIB, 4 * MIB, GIB, GIB + MIB):
        before = cuda.free_bytes()
        status, piece = cuda.number("cuMemCreate", size, _properties(), 0)
        line(f"create {size}", status, taken=before - cuda.free_bytes())
        if status == 0:
            line(f"release {size}", cuda.call("cuMemRelease", piece))
            line(f"release {size}, bytes", left=before - cuda.free_bytes())
    line("create on device 99", cuda.number("cuMemCreate", PAGE, _properties(99), 0)[0])
    line("create without properties", cuda.number("cuMemCreate", PAGE, None, 0)[0])
    wrong = (ctypes.c_int * 8)(7, 0, 1, 0)
    line("create of another type", cuda.number("cuMemCreate", PAGE, wrong, 0)[0])
    line("release of nothing", cuda.call("cuMemRelease", 0))


def reservations(cuda: Cuda) -> None:
    """Which sizes and alignments can be reserved, and where they are."""
    cuda.open()
    before = cuda.free_bytes()
    for size in (0, 1, 4 * KIB, 64 * KIB, PAGE, 3 * MIB, GIB, 80 * GIB, 1 << 40, 1 << 46, 1 << 50):
        status, address = cuda.number("cuMemAddressReserve", size, 0, 0, 0)
        line(f"reserve {size}", status, raw=[hex(address), alignment(address)])
        if status == 0:
            line(f"unreserve {size}", cuda.call("cuMemAddressFree", address, size))
    for align in (0, 1, 3, 4 * KIB, 64 * KIB, PAGE, 4 * MIB, 3 * MIB, GIB):
        status, address = cuda.number("cuMemAddressReserve", 4 * MIB, align, 0, 0)
        right = address % max(align, 1) == 0
        line(f"reserve aligned to {align}", status, aligned=right, raw=hex(address))
    held = [reserve(cuda, 4) for _ in range(12)]
    steps = [b - a for a, b in itertools.pairwise(held)]
    line("order", descending=sum(step < 0 for step in steps), raw=steps)
    status, wished = cuda.number("cuMemAddressReserve", 4 * MIB, 0, held[0] + GIB, 0)
    line("a wish", status, granted=wished == held[0] + GIB)
    status, other = cuda.number("cuMemAddressReserve", 4 * MIB, 0, held[0], 0)
    line("a wish for reserved addresses", status, granted=other == held[0])
    cuda.need("cuMemAddressFree", held[5], 4 * PAGE)
    line("again after a free", same=reserve(cuda, 4) == held[5])
    line("flags", cuda.number("cuMemAddressReserve", 4 * MIB, 0, 0, 1)[0])
    line("wrong size", cuda.call("cuMemAddressFree", held[0], PAGE))
    line("inside", cuda.call("cuMemAddressFree", held[0] + PAGE, PAGE))
    line("free", cuda.call("cuMemAddressFree", held[0], 4 * PAGE))
    line("free again", cuda.call("cuMemAddressFree", held[0], 4 * PAGE))
    line("bytes", taken=before - cuda.free_bytes())


def mappings(cuda: Cuda) -> None:
    """Mappings as the driver documents them, and those that it refuses."""
    cuda.open()
    start = cuda.free_bytes()
    at, two, four, gone = reserve(cuda, 8), create(cuda, 1), create(cuda, 2), create(cuda, 1)
    line("two pieces and one", used=(start - cuda.free_bytes()) // MIB)
    line("release", cuda.call("cuMemRelease", gone))

    def mapped(name: str, address: int, size: int, piece: int, offset: int = 0) -> None:
        status = cuda.call("cuMemMap", address, size, offset, piece, 0)
        line(name, status)
        if status == 0 and not name.startswith("map"):
            line(f"{name}, undone", cuda.call("cuMemUnmap", address, size))

    mapped("map 2 MiB", at, PAGE, two)
    mapped("map 4 MiB", at + PAGE, 2 * PAGE, four)
    mapped("a larger size", at + 4 * PAGE, 2 * PAGE, two)
    mapped("half of the size", at + 4 * PAGE, PAGE, four)
    mapped("the other half", at + 4 * PAGE, PAGE, four, PAGE)
    mapped("not a whole page", at + 4 * PAGE, MIB, two)
    mapped("size 0", at + 4 * PAGE, 0, two)
    mapped("not at a page", at + 4 * PAGE + MIB, PAGE, two)
    mapped("at the end of the reservation", at + 7 * PAGE, 2 * PAGE, four)
    mapped("not reserved", at - 4096 * PAGE, PAGE, two)
    mapped("over itself", at, PAGE, two)
    mapped("over another", at + 2 * PAGE, 2 * PAGE, four)
    mapped("released", at + 4 * PAGE, PAGE, gone)
    mapped("no piece", at + 4 * PAGE, PAGE, 0)
    for name, first, size in (
        ("all", 0, 3 * PAGE),
        ("the first", 0, PAGE),
        ("the first, not all of the second", 0, 2 * PAGE),
        ("with a gap at the end", PAGE, 3 * PAGE),
        ("half of one", PAGE, PAGE),
        ("the second half of one", 2 * PAGE, PAGE),
        ("half a page", 0, MIB),
        ("nothing", 0, 0),
        ("not mapped", 5 * PAGE, PAGE),
    ):
        line(f"access: {name}", cuda.call("cuMemSetAccess", at + first, size, _access(), 1))
    line("access: another device", cuda.call("cuMemSetAccess", at, PAGE, _access(99), 1))
    line("access: unknown flags", cuda.call("cuMemSetAccess", at, PAGE, _access(0, 9), 1))
    line("access: no description", cuda.call("cuMemSetAccess", at, PAGE, _access(), 0))
    line("release of a mapped piece", cuda.call("cuMemRelease", two))
    line("release again", cuda.call("cuMemRelease", two))
    line("bytes afterwards", used=(start - cuda.free_bytes()) // MIB)
    line("free of the mapped reservation", cuda.call("cuMemAddressFree", at, 8 * PAGE))
    for name, first, size in (
        ("half of one", PAGE, PAGE),
        ("the second half of one", 2 * PAGE, PAGE),
        ("half a page", 0, MIB),
        ("with a gap", 0, 4 * PAGE),
        ("not mapped", 5 * PAGE, PAGE),
        ("nothing", 0, 0),
        ("both", 0, 3 * PAGE),
        ("both again", 0, 3 * PAGE),
    ):
        line(f"unmap: {name}", cuda.call("cuMemUnmap", at + first, size))
    line("bytes after unmapping", used=(start - cuda.free_bytes()) // MIB)
    line("last handle", cuda.call("cuMemRelease", four))
    line("bytes after the last handle", used=(start - cuda.free_bytes()) // MIB)
    line("unreserve half", cuda.call("cuMemAddressFree", at, 4 * PAGE))
    line("unreserve", cuda.call("cuMemAddressFree", at, 8 * PAGE))


def aliases(cuda: Cuda) -> None:
    """One piece at two addresses."""
    cuda.open()
    start = cuda.free_bytes()
    at, piece = reserve(cuda, 4), create(cuda, 1)
    word = ctypes.c_uint32()

    def read(page: int) -> tuple[int, int]:
        status = cuda.call("cuMemcpyDtoH_v2", ctypes.byref(word), at + page * PAGE, 4)
        return status, word.value

    for page in (0, 2):
        line(f"map {page}", cuda.call("cuMemMap", at + page * PAGE, PAGE, 0, piece, 0))
        access = cuda.call("cuMemSetAccess", at + page * PAGE, PAGE, _access(), 1)
        line(f"access {page}", access)
    line("bytes", used=(start - cuda.free_bytes()) // MIB)
    line("write", cuda.call("cuMemsetD8_v2", at, 7, PAGE))
    if cuda.real:
        status, value = read(2)
        line("read at the other address", status, raw=hex(value))
    line("unmap one", cuda.call("cuMemUnmap", at, PAGE))
    line("release", cuda.call("cuMemRelease", piece))
    line("bytes with one mapping", used=(start - cuda.free_bytes()) // MIB)
    line("read with one mapping", read(2)[0])
    line("read where nothing is mapped", read(0)[0])
    line("unmap", cuda.call("cuMemUnmap", at + 2 * PAGE, PAGE))
    line("bytes at the end", used=(start - cuda.free_bytes()) // MIB)


def access_flags(cuda: Cuda) -> None:
    """What may be done with mapped memory before access is set."""
    cuda.open()
    at, piece = reserve(cuda, 2), create(cuda, 1)
    place, flags = (ctypes.c_int * 2)(1, 0), ctypes.c_uint64(77)

    def seen(name: str) -> None:
        status = cuda.call("cuMemGetAccess", ctypes.byref(flags), place, at)
        line(f"{name}: access", status, value=flags.value if status == 0 else None)

    seen("reserved")
    cuda.need("cuMemMap", at, PAGE, 0, piece, 0)
    seen("mapped")
    line("memset of an address without memory", cuda.call("cuMemsetD8_v2", at + PAGE, 0, 1))
    for flag in (3, 1, 0, 3):
        status = cuda.call("cuMemSetAccess", at, PAGE, _access(0, flag), 1)
        line(f"set {flag} after {flags.value}", status)
        seen(f"set {flag} after {flags.value}")
    line("memset", cuda.call("cuMemsetD8_v2", at, 0, PAGE))
    line("memset beyond", cuda.call("cuMemsetD8_v2", at, 0, PAGE + 1))
    line("synchronize", cuda.call("cuCtxSynchronize"))


def without_access(cuda: Cuda) -> None:
    """A memset of mapped memory that no device may access."""
    cuda.open()
    at, piece = reserve(cuda, 2), create(cuda, 1)
    cuda.need("cuMemMap", at, PAGE, 0, piece, 0)
    line("memset", cuda.call("cuMemsetD8_v2", at, 0, 1))
    line("synchronize", cuda.call("cuCtxSynchronize"))
    line("alloc afterwards", cuda.number("cuMemAlloc_v2", MIB)[0])


def retained(cuda: Cuda) -> None:
    """A handle that is retained from an address."""
    cuda.open()
    start = cuda.free_bytes()
    at, piece = reserve(cuda, 1), create(cuda, 1)
    cuda.need("cuMemMap", at, PAGE, 0, piece, 0)
    status, again = cuda.number("cuMemRetainAllocationHandle", at + 5)
    line("retained", status, same=again == piece)
    line("beyond", cuda.number("cuMemRetainAllocationHandle", at + PAGE)[0])
    line("of a segment", cuda.number("cuMemRetainAllocationHandle", cuda.alloc(PAGE))[0])
    start -= PAGE
    line("release", cuda.call("cuMemRelease", piece))
    line("unmap", cuda.call("cuMemUnmap", at, PAGE))
    line("kept", used=(start - cuda.free_bytes()) // MIB)
    line("release again", cuda.call("cuMemRelease", again if status == 0 else piece))
    line("bytes", used=(start - cuda.free_bytes()) // MIB)


def many_pages(cuda: Cuda) -> None:
    """A thousand pages in one reservation, unmapped at once; bytes of the bookkeeping."""
    cuda.open()
    start = cuda.free_bytes()
    at = reserve(cuda, 1000)
    line("reserved", taken=(start - cuda.free_bytes()) // MIB)
    for page in range(1000):
        piece = create(cuda, 1)
        cuda.need("cuMemMap", at + page * PAGE, PAGE, 0, piece, 0)
        cuda.need("cuMemRelease", piece)
    line("mapped", used=(start - cuda.free_bytes()) // MIB)
    line("access to all", cuda.call("cuMemSetAccess", at, 1000 * PAGE, _access(), 1))
    line("bytes with access", used=(start - cuda.free_bytes()) // MIB)
    line("memset of all", cuda.call("cuMemsetD8_v2", at, 1, 1000 * PAGE))
    line("unmap all", cuda.call("cuMemUnmap", at, 1000 * PAGE))
    line("bytes at the end", used=(start - cuda.free_bytes()) // MIB)
    line("unreserve", cuda.call("cuMemAddressFree", at, 1000 * PAGE))


SCENARIOS = (
    pieces,
    reservations,
    mappings,
    aliases,
    access_flags,
    without_access,
    retained,
    many_pages,
)
