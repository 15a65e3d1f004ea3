# SPDX-License-Identifier: Apache-2.0
"""Scenarios: allocations of cuMemAlloc, their bytes and addresses; pointers; no memory left."""

import ctypes
import itertools
from collections import Counter
from typing import Any

from benchmarks.workshop.gpu.driver.cuda import GIB, KIB, MIB, Cuda, alignment, line

SIZES = (
    *(1, 255, 256, 257, 512, 4 * KIB, 64 * KIB, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB),
    *(2 * MIB + 1, 3 * MIB, 4 * MIB, 5 * MIB, 10 * MIB, 20 * MIB, 20 * MIB + 1, 32 * MIB),
    *(33 * MIB, 64 * MIB, 100 * MIB, 256 * MIB, GIB, GIB + 1),
)
ATTRIBUTES = {
    "context": 1,
    "type": 2,
    "device pointer": 3,
    "host pointer": 4,
    "buffer": 7,
    "managed": 8,
    "device": 9,
    "begin": 11,
    "size": 12,
    "mapped": 13,
    "pool": 17,
}


def bytes_by_size(cuda: Cuda) -> None:
    """What allocations of each size take from the GPU, and what their frees return."""
    cuda.open()
    for size in SIZES:
        taken, addresses = [], []
        for _ in range(3):
            before = cuda.free_bytes()
            addresses.append(cuda.alloc(size))
            taken.append(before - cuda.free_bytes())
        returned = []
        for address in addresses:
            before = cuda.free_bytes()
            cuda.need("cuMemFree_v2", address)
            returned.append(cuda.free_bytes() - before)
        steps = [b - a for a, b in itertools.pairwise(addresses)]
        line(f"{size} bytes", taken=taken, returned=returned, raw={"steps": steps})
        line(f"{size} bytes, alignment", raw=[alignment(address) for address in addresses])


def bytes_by_size_fresh(cuda: Cuda) -> None:
    """The first allocation of one size after nothing else is held."""
    cuda.open()
    for size in (1, 4 * KIB, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 3 * MIB):
        keep = cuda.free_bytes()
        held = [cuda.alloc(size) for _ in range(64)]
        taken = keep - cuda.free_bytes()
        for address in held:
            cuda.need("cuMemFree_v2", address)
        line(f"64 times {size} bytes", taken=taken, left=keep - cuda.free_bytes())


def small_allocations(cuda: Cuda) -> None:
    """Thousands of small allocations: how many share a piece of the GPU's memory."""
    cuda.open()
    for size in (1, 512, 513, 4 * KIB, 100 * KIB, 512 * KIB, MIB, 1200 * KIB):
        start = cuda.free_bytes()
        held, growth, before = [], [], start
        for number in range(2000):
            held.append(cuda.alloc(size))
            if (now := cuda.free_bytes()) != before:
                growth.append((number, before - now))
                before = now
        steps = Counter(b - a for a, b in itertools.pairwise(held))
        line(f"2000 times {size} bytes", taken=start - before, grew=len(growth))
        line(f"{size} bytes, places", raw={"growth": growth[:8], "steps": steps.most_common(5)})
        for address in held[::2]:
            cuda.need("cuMemFree_v2", address)
        half = cuda.free_bytes()
        for address in held[1::2]:
            cuda.need("cuMemFree_v2", address)
        line(
            f"2000 times {size} bytes, frees",
            after_half=half - before,
            after_all=cuda.free_bytes() - start,
        )


def order_of_addresses(cuda: Cuda) -> None:
    """Whether addresses ascend or descend, and which gaps are between them."""
    cuda.open()
    for size in (MIB, 2 * MIB, 3 * MIB, 20 * MIB, 64 * MIB, 512 * MIB):
        held = [cuda.alloc(size) for _ in range(24)]
        steps = [b - a for a, b in itertools.pairwise(held)]
        line(f"{size} bytes", descending=sum(step < 0 for step in steps), raw=steps)
        for address in held:
            cuda.need("cuMemFree_v2", address)
    sizes = [((number * 7919) % 97 + 1) * MIB for number in range(64)]
    held = [cuda.alloc(size) for size in sizes]
    steps = [b - a for a, b in itertools.pairwise(held)]
    line("mixed sizes", descending=sum(step < 0 for step in steps), raw=[sizes, held])
    for address in held:
        cuda.need("cuMemFree_v2", address)


def reuse_of_addresses(cuda: Cuda) -> None:
    """Which address an allocation gets after frees."""
    cuda.open()
    for size in (MIB, 2 * MIB, 20 * MIB, 256 * MIB):
        first, middle, last = (cuda.alloc(size) for _ in range(3))
        cuda.need("cuMemFree_v2", middle)
        again = cuda.alloc(size)
        cuda.need("cuMemFree_v2", again)
        smaller = cuda.alloc(size // 2)
        line(f"{size} bytes, the same", same=again == middle)
        line(f"{size} bytes, half", within=middle <= smaller < middle + size)
        other = cuda.alloc(size * 2)
        line(f"{size} bytes, twice", below=other < min(first, last))
        for address in (first, last, smaller, other):
            cuda.need("cuMemFree_v2", address)
        again_all = [cuda.alloc(size) for _ in range(3)]
        line(f"{size} bytes, all again", same=again_all == [first, middle, last])
        for address in again_all:
            cuda.need("cuMemFree_v2", address)


def wrong_frees(cuda: Cuda) -> None:
    """Allocations of nothing, and frees of what was not allocated."""
    cuda.open()
    address = cuda.alloc(4 * MIB)
    line("alloc of 0 bytes", cuda.number("cuMemAlloc_v2", 0)[0])
    line("free of 0", cuda.call("cuMemFree_v2", 0))
    for at in (1, 512, MIB, 2 * MIB, 4 * MIB):
        line(f"free at {at}", cuda.call("cuMemFree_v2", address + at))
    line("free of an unknown address", cuda.call("cuMemFree_v2", 0x1000))
    line("free", cuda.call("cuMemFree_v2", address))
    line("free again", cuda.call("cuMemFree_v2", address))
    line("async free of the freed", cuda.call("cuMemFreeAsync", address, 0))
    address = cuda.alloc(4 * MIB)
    line("async free of a segment", cuda.call("cuMemFreeAsync", address, 0))
    line("free after an async free", cuda.call("cuMemFree_v2", address))
    pooled = cuda.handle("cuMemAllocAsync", 4 * MIB, 0)
    line("free of a pool's block", cuda.call("cuMemFree_v2", pooled))
    line("async free of it", cuda.call("cuMemFreeAsync", pooled, 0))
    line("synchronize", cuda.call("cuCtxSynchronize"))


def out_of_memory(cuda: Cuda) -> None:
    """Requests that cannot succeed, and how much of the free memory can be allocated."""
    cuda.open()
    total = cuda.handle("cuDeviceTotalMem_v2", 0)
    free = cuda.free_bytes()
    line("free after opening", raw={"free": free, "total": total})
    for name, size in (
        ("all memory", total),
        ("more than free", free + 2 * MIB),
        ("1 TiB", 1 << 40),
        ("2^47", 1 << 47),
        ("2^63", 1 << 63),
    ):
        line(name, cuda.number("cuMemAlloc_v2", size)[0])
        pages = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        properties = (ctypes.c_int * 8)(1, 0, 1, 0)
        line(f"{name}, pages", cuda.number("cuMemCreate", pages, properties, 0)[0])
        line(f"{name}, pool", cuda.number("cuMemAllocAsync", size, 0)[0])
    line("a small one afterwards", cuda.call("cuMemFree_v2", cuda.alloc(MIB)))
    low, high = 0, free // MIB + 1  # MiB that can and cannot be allocated at once
    while high - low > 1:
        middle = (low + high) // 2
        status, address = cuda.number("cuMemAlloc_v2", middle * MIB)
        if status == 0:
            cuda.need("cuMemFree_v2", address)
            low = middle
        else:
            high = middle
    line("largest allocation", free_left=(free - low * MIB) // (2 * MIB) * 2, raw=low)
    held, size = [], 4 * GIB
    while size >= 2 * MIB:
        status, address = cuda.number("cuMemAlloc_v2", size)
        if status == 0:
            held.append(address)
        else:
            size //= 2
    line("free when 2 MiB fail", free=cuda.free_bytes() // MIB, raw=len(held))
    line("a page", cuda.number("cuMemCreate", 2 * MIB, (ctypes.c_int * 8)(1, 0, 1, 0), 0)[0])
    line("a pool's block", cuda.number("cuMemAllocAsync", 2 * MIB, 0)[0])
    line("an event", cuda.number("cuEventCreate", 0)[0])
    line("a stream", cuda.number("cuStreamCreate", 1)[0])
    for address in held:
        cuda.need("cuMemFree_v2", address)
    line("after all frees", lost=(free - cuda.free_bytes()) // MIB)


def _attributes(cuda: Cuda, name: str, address: int, base: int, context: int) -> None:
    for attribute, number in ATTRIBUTES.items():
        value = (ctypes.c_uint64 * 4)()
        status = cuda.call("cuPointerGetAttribute", value, number, address)
        found: int | bool = value[0]
        if status:
            found = 0
        elif attribute in ("device pointer", "host pointer", "begin"):
            found = value[0] - base
        elif attribute == "context":
            found = value[0] == context
        elif attribute in ("buffer", "pool"):
            found = value[0] != 0
        line(f"{name}, {attribute}", status, value=found)
    begin, size = ctypes.c_uint64(), ctypes.c_uint64()
    status = cuda.call("cuMemGetAddressRange_v2", ctypes.byref(begin), ctypes.byref(size), address)
    line(f"{name}, range", status, value=None if status else [begin.value - base, size.value])


def pointers(cuda: Cuda) -> None:
    """The attributes of pointers, and the ranges that addresses are in."""
    context = cuda.open()
    size = 3 * MIB + 5
    segment = cuda.alloc(size)
    _attributes(cuda, "a segment", segment, segment, context)
    _attributes(cuda, "inside of it", segment + MIB, segment, context)
    _attributes(cuda, "its last byte", segment + size - 1, segment, context)
    _attributes(cuda, "behind its last byte", segment + size, segment, context)
    _attributes(cuda, "behind its last page", segment + 4 * MIB, segment, context)
    cuda.need("cuMemFree_v2", segment)
    _attributes(cuda, "freed", segment, segment, context)
    small = cuda.alloc(5)
    _attributes(cuda, "a small one", small, small, context)
    _attributes(cuda, "behind a small one", small + 5, small, context)
    pooled = cuda.handle("cuMemAllocAsync", 1000, 0)
    _attributes(cuda, "a pool's block", pooled, pooled, context)
    _attributes(cuda, "inside of a pool's block", pooled + 10, pooled, context)
    _attributes(cuda, "behind a pool's block", pooled + 1000, pooled, context)
    pinned = cuda.handle("cuMemHostAlloc", 4096, 0)
    _attributes(cuda, "pinned", pinned, pinned, context)
    pageable = ctypes.create_string_buffer(4096)
    _attributes(cuda, "pageable", ctypes.addressof(pageable), ctypes.addressof(pageable), context)
    _attributes(cuda, "nowhere", 0, 0, context)
    properties = (ctypes.c_int * 8)(1, 0, 1, 0)
    reserved = cuda.handle("cuMemAddressReserve", 4 * MIB, 0, 0, 0)
    piece = cuda.handle("cuMemCreate", 2 * MIB, properties, 0)
    _attributes(cuda, "reserved", reserved, reserved, context)
    cuda.need("cuMemMap", reserved, 2 * MIB, 0, piece, 0)
    _attributes(cuda, "mapped", reserved + 5, reserved, context)
    _attributes(cuda, "reserved, not mapped", reserved + 2 * MIB, reserved, context)
    cuda.need("cuMemSetAccess", reserved, 2 * MIB, (ctypes.c_int * 3)(1, 0, 3), 1)
    _attributes(cuda, "mapped, with access", reserved + 5, reserved, context)


def managed(cuda: Cuda) -> None:
    """What managed memory takes of the GPU: untouched, written there, moved out, in the way."""
    context = cuda.open()
    size, start = 256 * MIB, cuda.free_bytes()
    status, address = cuda.number("cuMemAllocManaged", size, 1)
    line("alloc", status, taken=start - cuda.free_bytes())
    _attributes(cuda, "managed", address + 5, address, context)
    calls: dict[str, tuple[str, Any]] = {
        "write": ("cuMemsetD8_v2", (address, 1, size)),
        "move to the host": ("cuMemPrefetchAsync", (address, size, -1, 0)),
        "move to the GPU": ("cuMemPrefetchAsync", (address, size, 0, 0)),
    }
    for name, (function, arguments) in calls.items():
        status = cuda.call(function, *arguments) or cuda.call("cuCtxSynchronize")
        line(name, status, taken=(start - cuda.free_bytes()) // MIB)
    status, other = cuda.number("cuMemAlloc_v2", cuda.free_bytes() + size // 2)
    line("alloc of more than is free", status)
    if status == 0:
        cuda.need("cuMemFree_v2", other)
    line("afterwards", taken=(start - cuda.free_bytes()) // MIB)
    line("free", cuda.call("cuMemFree_v2", address), taken=(start - cuda.free_bytes()) // MIB)


def bounds(cuda: Cuda) -> None:
    """Memsets and copies that leave an allocation."""
    cuda.open()
    buffer = ctypes.create_string_buffer(8 * MIB)
    for size in (5, MIB, 3 * MIB + 5, 4 * MIB):
        address = cuda.alloc(size)
        line(f"{size}: all", cuda.call("cuMemsetD8_v2", address, 1, size))
        line(f"{size}: one more", cuda.call("cuMemsetD8_v2", address, 1, size + 1))
        line(f"{size}: 4 MiB more", cuda.call("cuMemsetD8_v2", address, 1, size + 4 * MIB))
        line(f"{size}: behind", cuda.call("cuMemsetD8_v2", address + size, 1, 1))
        line(f"{size}: async, one more", cuda.call("cuMemsetD8Async", address, 1, size + 1, 0))
        line(f"{size}: none", cuda.call("cuMemsetD8_v2", address, 1, 0))
        line(f"{size}: copy", cuda.call("cuMemcpyDtoH_v2", buffer, address, size))
        line(f"{size}: copy one more", cuda.call("cuMemcpyDtoH_v2", buffer, address, size + 1))
        line(f"{size}: copy in", cuda.call("cuMemcpyHtoD_v2", address, buffer, size + 1))
        line(f"{size}: synchronize", cuda.call("cuCtxSynchronize"))
        cuda.need("cuMemFree_v2", address)
        line(f"{size}: freed", cuda.call("cuMemsetD8_v2", address, 1, 1))


def free_waits(cuda: Cuda) -> None:
    """Which calls wait for work that is queued on a stream."""
    cuda.open()
    cuda.load_kernels()
    stream = cuda.stream()
    properties = (ctypes.c_int * 8)(1, 0, 1, 0)
    reserved = cuda.handle("cuMemAddressReserve", 4 * MIB, 0, 0, 0)
    piece = cuda.handle("cuMemCreate", 2 * MIB, properties, 0)
    small, large = cuda.alloc(512), cuda.alloc(64 * MIB)
    steps = (
        ("alloc of 512 bytes", "cuMemAlloc_v2", (ctypes.byref(ctypes.c_uint64()), 512)),
        ("alloc of 64 MiB", "cuMemAlloc_v2", (ctypes.byref(ctypes.c_uint64()), 64 * MIB)),
        ("free of 512 bytes", "cuMemFree_v2", (small,)),
        ("free of 64 MiB", "cuMemFree_v2", (large,)),
        ("map", "cuMemMap", (reserved, 2 * MIB, 0, piece, 0)),
        ("access", "cuMemSetAccess", (reserved, 2 * MIB, (ctypes.c_int * 3)(1, 0, 3), 1)),
        ("unmap", "cuMemUnmap", (reserved, 2 * MIB)),
        ("release", "cuMemRelease", (piece,)),
        ("unreserve", "cuMemAddressFree", (reserved, 4 * MIB)),
    )
    for name, call, arguments in steps:
        cuda.busy(stream)
        status = cuda.call(call, *arguments)
        line(name, status, stream_afterwards=cuda.call("cuStreamQuery", stream))
        cuda.idle(stream)
        cuda.need("cuCtxSynchronize")


SCENARIOS = (
    bytes_by_size,
    bytes_by_size_fresh,
    small_allocations,
    order_of_addresses,
    reuse_of_addresses,
    wrong_frees,
    out_of_memory,
    pointers,
    managed,
    bounds,
    free_waits,
)
