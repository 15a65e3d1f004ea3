# SPDX-License-Identifier: Apache-2.0
"""Scenarios: the driver's memory pools: bytes, thresholds, reuse between streams, errors."""

import ctypes
import itertools
import random

from benchmarks.workshop.gpu.driver.cuda import GIB, KIB, MIB, Cuda, alignment, line

ATTRIBUTES = {
    "reuse follows events": 1,
    "reuse of ended frees": 2,
    "reuse adds dependencies": 3,
    "threshold": 4,
    "reserved": 5,
    "reserved high": 6,
    "used": 7,
    "used high": 8,
}


class Pool:
    """A pool of device 0 with its attributes by name."""

    def __init__(self, cuda: Cuda, *, threshold: int | None = None, most: int = 0) -> None:
        properties = (ctypes.c_char * 88)()
        place = (ctypes.c_int * 4)(1, 0, 1, 0)  # pinned, no handle to share, on a device, 0
        ctypes.memmove(properties, place, 16)
        ctypes.memmove(ctypes.byref(properties, 24), ctypes.byref(ctypes.c_uint64(most)), 8)
        self.cuda = cuda
        self.handle = cuda.handle("cuMemPoolCreate", properties)
        if threshold is not None:
            self.set("threshold", threshold)

    def get(self, name: str) -> int:
        """An attribute, by its name in ATTRIBUTES."""
        value = ctypes.c_uint64()
        number = ATTRIBUTES[name]
        self.cuda.need("cuMemPoolGetAttribute", self.handle, number, ctypes.byref(value))
        return value.value

    def set(self, name: str, value: int) -> int:
        """Set an attribute; the status."""
        wide = ctypes.c_uint64(value)
        return self.cuda.call(
            "cuMemPoolSetAttribute", self.handle, ATTRIBUTES[name], ctypes.byref(wide)
        )

    def alloc(self, size: int, stream: int = 0) -> int:
        """The address of a block; raises RuntimeError."""
        return self.cuda.handle("cuMemAllocFromPoolAsync", size, self.handle, stream)

    def free(self, address: int, stream: int = 0) -> int:
        """Free a block in the order of a stream; the status."""
        return self.cuda.call("cuMemFreeAsync", address, stream)

    def close(self, *blocks: int) -> None:
        """Free blocks, wait for the GPU, and destroy the pool."""
        for block in blocks:
            self.free(block)
        self.cuda.need("cuCtxSynchronize")
        self.cuda.need("cuMemPoolDestroy", self.handle)

    def show(self, label: str) -> None:
        """Print the four numbers of bytes, in MiB where they are whole."""
        names = ("reserved", "reserved high", "used", "used high")
        line(label, **{name.replace(" ", "_"): self.get(name) for name in names})


def attributes(cuda: Cuda) -> None:
    """The attributes of a new pool and of the default pool, and which can be set."""
    cuda.open()
    made, default = Pool(cuda), Pool(cuda)
    default.handle = cuda.handle("cuDeviceGetDefaultMemPool", 0)
    status, current = cuda.number("cuDeviceGetMemPool", 0)
    line("current", status, is_default=current == default.handle)
    for name, pool in (("new", made), ("default", default)):
        for attribute in ATTRIBUTES:
            line(f"{name}, {attribute}", value=pool.get(attribute))
    for attribute in ATTRIBUTES:
        for value in (0, 1, 5 * MIB, 2**64 - 1):
            status = made.set(attribute, value)
            line(f"{attribute} = {value}", status, value=made.get(attribute) & (2**64 - 1))
    out = ctypes.byref(ctypes.c_uint64())
    for number in (0, 9, 99):
        status = cuda.call("cuMemPoolGetAttribute", made.handle, number, out)
        line(f"attribute {number}", status)


def wrong_pools(cuda: Cuda) -> None:
    """Pools with properties that the driver refuses."""
    cuda.open()
    for name, content in (
        ("device 99", (1, 0, 1, 99)),
        ("location 0", (1, 0, 0, 0)),
        ("type 0", (0, 0, 1, 0)),
        ("handles 7", (1, 7, 1, 0)),
    ):
        properties = (ctypes.c_char * 88)()
        ctypes.memmove(properties, (ctypes.c_int * 4)(*content), 16)
        line(name, cuda.number("cuMemPoolCreate", properties)[0])


def bytes_by_size(cuda: Cuda) -> None:
    """What a new pool reserves for blocks of a size, and after their frees."""
    cuda.open()
    sizes = (1, 512, 513, 64 * KIB, MIB, 2 * MIB, 2 * MIB + 1, 31 * MIB, 32 * MIB, 33 * MIB)
    for size in (*sizes, 64 * MIB, 65 * MIB, 100 * MIB, 500 * MIB, GIB, GIB + 1, 5 * GIB):
        pool, before = Pool(cuda, threshold=2**64 - 1), cuda.free_bytes()
        blocks, growth = [], []
        for _ in range(3):
            blocks.append(pool.alloc(size))
            growth.append((pool.get("reserved"), pool.get("used")))
        taken = before - cuda.free_bytes()
        steps = [b - a for a, b in itertools.pairwise(blocks)]
        line(f"{size} bytes", reserved_used=growth, taken=taken)
        line(f"{size} bytes, places", steps=steps, raw=[alignment(block) for block in blocks])
        for block in blocks:
            pool.free(block)
        cuda.need("cuCtxSynchronize")
        pool.show(f"{size} bytes, freed")
        again = [pool.alloc(size) for _ in range(3)]
        line(f"{size} bytes, again", same=again == blocks, reserved=pool.get("reserved"))
        for block in again:
            pool.free(block)
        cuda.need("cuMemPoolTrimTo", pool.handle, 0)
        line(f"{size} bytes, trimmed", reserved=pool.get("reserved"))
        cuda.need("cuMemPoolDestroy", pool.handle)
        line(f"{size} bytes, destroyed", left=before - cuda.free_bytes())


def thresholds(cuda: Cuda) -> None:
    """What returns free memory: which calls, at which threshold."""
    cuda.open()
    stream, event = cuda.stream(), cuda.handle("cuEventCreate", 0)
    for threshold in (0, 64 * MIB, 100 * MIB, 2**64 - 1):
        for name, call, arguments in (
            ("stream synchronize", "cuStreamSynchronize", (stream,)),
            ("other stream synchronize", "cuStreamSynchronize", (0,)),
            ("event synchronize", "cuEventSynchronize", (event,)),
            ("context synchronize", "cuCtxSynchronize", ()),
            ("stream query", "cuStreamQuery", (stream,)),
            ("event query", "cuEventQuery", (event,)),
            ("another alloc", "cuMemAlloc_v2", (ctypes.byref(ctypes.c_uint64()), MIB)),
        ):
            pool = Pool(cuda, threshold=threshold)
            blocks = [pool.alloc(size * MIB, stream) for size in (100, 60, 7)]
            before = pool.get("reserved")
            for block in blocks[1:]:
                pool.free(block, stream)
            freed = pool.get("reserved")
            cuda.need("cuEventRecord", event, stream)
            status = cuda.call(call, *arguments)
            after = pool.get("reserved")
            pool.free(blocks[0], stream)
            cuda.call(call, *arguments)
            line(
                f"threshold {threshold}, {name}",
                status,
                reserved=[before // MIB, freed // MIB, after // MIB, pool.get("reserved") // MIB],
            )
            pool.close()


def trims(cuda: Cuda) -> None:
    """What a trim leaves of a pool with holes."""
    cuda.open()
    for keep in (0, 1, 50 * MIB, 64 * MIB, 100 * MIB, GIB):
        pool = Pool(cuda, threshold=2**64 - 1)
        blocks = [pool.alloc(10 * MIB) for _ in range(20)]
        for block in blocks[::2]:
            pool.free(block)
        line(f"keep {keep}: trim before a synchronization", _trim(pool, keep), **_mib(pool))
        cuda.need("cuCtxSynchronize")
        line(f"keep {keep}: trim after it", _trim(pool, keep), **_mib(pool))
        for block in blocks[5:15:2]:
            pool.free(block)
        cuda.need("cuCtxSynchronize")
        line(f"keep {keep}: trim with a larger hole", _trim(pool, keep), **_mib(pool))
        for block in (*blocks[1:5:2], *blocks[15::2]):
            pool.free(block)
        cuda.need("cuCtxSynchronize")
        line(f"keep {keep}: trim of an empty one", _trim(pool, keep), **_mib(pool))
        cuda.need("cuMemPoolDestroy", pool.handle)


def _trim(pool: Pool, keep: int) -> int:
    return pool.cuda.call("cuMemPoolTrimTo", pool.handle, keep)


def _mib(pool: Pool) -> dict[str, int]:
    return {name: pool.get(name) // MIB for name in ("reserved", "used")}


def fragmentation(cuda: Cuda) -> None:
    """Requests that fit into a pool's free bytes, but into none of its holes."""
    cuda.open()
    for hole, size in ((8, 16), (8, 9), (32, 64), (2, 3), (2, 4), (100, 200)):
        pool = Pool(cuda, threshold=2**64 - 1)
        blocks = [pool.alloc(hole * MIB) for _ in range(16)]
        for block in blocks[::2]:
            pool.free(block)
        cuda.need("cuCtxSynchronize")
        before = pool.get("reserved") // MIB
        large = pool.alloc(size * MIB)
        line(
            f"{size} MiB into holes of {hole} MiB",
            reserved=[before, pool.get("reserved") // MIB],
            raw=[large - blocks[0], [block - blocks[0] for block in blocks]],
        )
        pool.close(large, *blocks[1::2])


def between_streams(cuda: Cuda) -> None:
    """Whether another stream gets a freed block, by the three attributes of reuse."""
    cuda.open()
    cuda.load_kernels()
    first, second = cuda.stream(), cuda.stream()
    size = 64 * MIB
    for policy in range(8):
        for state in ("idle", "synchronized", "busy", "busy, event waited for", "same, busy"):
            pool = Pool(cuda, threshold=2**64 - 1)
            for bit, name in enumerate(list(ATTRIBUTES)[:3]):
                pool.set(name, policy >> bit & 1)
            block = pool.alloc(size, first)
            cuda.need("cuStreamSynchronize", first)
            if "busy" in state:
                cuda.busy(first)
            pool.free(block, first)
            if state == "synchronized":
                cuda.need("cuStreamSynchronize", first)
            if "event" in state:
                event = cuda.handle("cuEventCreate", 2)
                cuda.need("cuEventRecord", event, first)
                cuda.need("cuStreamWaitEvent", second, event, 0)
            asking = first if "same" in state else second
            again = pool.alloc(size, asking)
            reserved, used = pool.get("reserved") // MIB, pool.get("used") // MIB
            waits = cuda.call("cuStreamQuery", second)
            line(
                f"policies {policy:03b}, {state}",
                same=again == block,
                reserved=reserved,
                used=used,
                second_stream=waits,
            )
            cuda.idle(first)
            cuda.need("cuCtxSynchronize")
            pool.free(again, asking)
            pool.close()


def wrong_calls(cuda: Cuda) -> None:
    """Frees that are wrong, limits, and pools that are destroyed with blocks in use."""
    cuda.open()
    cuda.load_kernels()
    stream, other = cuda.stream(), cuda.stream()
    pool = Pool(cuda, threshold=2**64 - 1)
    block = pool.alloc(MIB, stream)
    line("alloc of 0", cuda.number("cuMemAllocFromPoolAsync", 0, pool.handle, stream)[0])
    line("default, alloc of 0", cuda.number("cuMemAllocAsync", 0, stream)[0])
    line("free inside", pool.free(block + 512, stream))
    line("free on another stream", pool.free(block, other))
    line("free again", pool.free(block, stream))
    line("free of 0", pool.free(0, stream))
    pool.show("after frees")
    block = pool.alloc(MIB, stream)
    cuda.busy(stream)
    line("free on a busy stream", pool.free(block, stream))
    line("free twice on a busy stream", pool.free(block, stream))
    pool.show("with a pending free")
    cuda.idle(stream)
    pool.show("when the stream is idle")
    cuda.need("cuStreamSynchronize", stream)
    pool.show("after a synchronization")
    total = cuda.handle("cuDeviceTotalMem_v2", 0)
    line("too large", cuda.number("cuMemAllocFromPoolAsync", total, pool.handle, stream)[0])
    pool.show("after a failure")
    block = pool.alloc(MIB, stream)
    cuda.need("cuMemPoolSetAttribute", pool.handle, 8, ctypes.byref(ctypes.c_uint64()))
    pool.show("peak of used bytes reset")
    line("destroy with a block", cuda.call("cuMemPoolDestroy", pool.handle))
    line("free after it", pool.free(block, stream))
    line("synchronize", cuda.call("cuCtxSynchronize"))
    small = Pool(cuda, most=100 * MIB)
    for size in (50, 40, 60, 33, 10):
        status = cuda.number("cuMemAllocFromPoolAsync", size * MIB, small.handle, stream)[0]
        line(f"at most 100 MiB: {size}", status)
    cuda.need("cuCtxSynchronize")


def destroyed_pool(cuda: Cuda) -> None:
    """Calls with the handle of a destroyed pool."""
    cuda.open()
    pool = Pool(cuda)
    line("destroy", cuda.call("cuMemPoolDestroy", pool.handle))
    line("alloc", cuda.number("cuMemAllocFromPoolAsync", MIB, pool.handle, 0)[0])


def pool_destroyed_twice(cuda: Cuda) -> None:
    """A second cuMemPoolDestroy."""
    cuda.open()
    pool = Pool(cuda)
    line("destroy", cuda.call("cuMemPoolDestroy", pool.handle))
    line("destroy again", cuda.call("cuMemPoolDestroy", pool.handle))


def default_pool(cuda: Cuda) -> None:
    """The default pool: its blocks and the bytes of the GPU."""
    cuda.open()
    pool = Pool(cuda)
    pool.handle = cuda.handle("cuDeviceGetDefaultMemPool", 0)
    start = cuda.free_bytes()
    blocks = [cuda.handle("cuMemAllocAsync", size * MIB, 0) for size in (1, 40, 3)]
    line("allocated", taken=start - cuda.free_bytes(), **_mib(pool))
    for block in blocks:
        pool.free(block)
    line("freed", taken=start - cuda.free_bytes(), **_mib(pool))
    cuda.need("cuCtxSynchronize")
    line("synchronized", taken=start - cuda.free_bytes(), **_mib(pool))
    pool.set("threshold", 2**64 - 1)
    free = cuda.free_bytes()
    block = pool.alloc(free // 2)
    pool.free(block)
    cuda.need("cuCtxSynchronize")
    line("half of the GPU kept", **_mib(pool))
    status = cuda.number("cuMemAlloc_v2", free * 3 // 4)[0]
    line("a segment that needs it", status, **_mib(pool))
    properties = (ctypes.c_int * 8)(1, 0, 1, 0)
    large = free * 3 // 4 // (2 * MIB) * 2 * MIB
    status = cuda.number("cuMemCreate", large, properties, 0)[0]
    line("pages that need it", status, **_mib(pool))
    line("destroy", cuda.call("cuMemPoolDestroy", pool.handle))


def random_calls(cuda: Cuda) -> None:
    """Reserved bytes and places in a pool after each of many random calls, to model its rules."""
    cuda.open()
    for name, least, most, live in (
        ("small", 9, 20, 256 * MIB),
        ("middle", 18, 26, 2 * GIB),
        ("large", 24, 31, 12 * GIB),
        ("all", 9, 30, 6 * GIB),
    ):
        draw = random.Random(name)
        pool = Pool(cuda, threshold=2**64 - 1)
        blocks: list[tuple[int, int, int]] = []
        history, used, origin = [], 0, None
        for number in range(1500):
            size = int(2 ** draw.uniform(least, most))
            if blocks and (used + size > live or draw.random() < 0.4):
                index, address, freed = blocks.pop(draw.randrange(len(blocks)))
                pool.free(address)
                used -= freed
                history.append([1, index, 0, pool.get("reserved") // MIB])
                continue
            address = pool.alloc(size)
            origin = address if origin is None else origin
            blocks.append((number, address, size))
            used += size
            history.append([0, size, address - origin, pool.get("reserved") // MIB])
        line(f"{name} blocks", raw=history, peak=pool.get("reserved high") // MIB)
        pool.close(*(address for _, address, _ in blocks))


SCENARIOS = (
    attributes,
    wrong_pools,
    bytes_by_size,
    thresholds,
    trims,
    fragmentation,
    between_streams,
    wrong_calls,
    destroyed_pool,
    pool_destroyed_twice,
    default_pool,
    random_calls,
)
