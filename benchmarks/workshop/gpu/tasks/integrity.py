# SPDX-License-Identifier: Apache-2.0
"""Task: write a pattern into each block of a replay, and look for it when the block is freed.

A kernel compares all words of the block, and the host reads the first and the last one. So blocks
that overlap, and addresses without memory, are found. A null GPU has no kernels: only the words
that the host reads are compared there.
"""

import argparse
import ctypes
import time
from collections.abc import Iterator
from typing import Any

from allocbench import allocators
from allocbench.workloads import ALLOC, FREE, MARK, Trace, catalog
from benchmarks.workshop.gpu import contestants, task
from benchmarks.workshop.gpu.driver.cuda import Cuda

_FIRST = ("expandable", "planned", "cuda_async", "caching:expandable_segments=true", "caching")
_ALL, _SOME = "gpt2-train", ("llm-decode", "llama3-8b-lora", "resnet50-train")
_THREADS, _MOST_BLOCKS = 256, 2048


def order(*, dry: bool) -> Iterator[tuple[str, str]]:
    """Workloads and specs: the strategies that map pages first."""
    specs = [who.spec for who in contestants.ours() if who.spec is not None]
    specs.sort(key=lambda spec: (_FIRST.index(spec) if spec in _FIRST else len(_FIRST), spec))
    yield from ((_ALL, spec) for spec in (specs[:3] if dry else specs))
    if not dry:
        yield from ((name, spec) for name in _SOME for spec in specs if spec in _FIRST)
        yield from ((name, spec) for name in _SOME for spec in specs if spec not in _FIRST)


class Checker:
    """Fills blocks and compares them. All of its work is on the default stream."""

    def __init__(self, cuda: Cuda, allocs: int) -> None:
        self.cuda, self.bytes, self.read_wrong = cuda, 0, 0
        self.counts = (ctypes.c_uint32 * (allocs + 1))()
        self._counters = cuda.alloc(ctypes.sizeof(self.counts))
        cuda.need("cuMemsetD8_v2", self._counters, 0, ctypes.sizeof(self.counts))

    def pattern(self, index: int) -> int:
        """The word of a block; on a null GPU one of equal bytes, the only ones that it keeps."""
        if not self.cuda.real:
            return (1 + index % 255) * 0x01010101
        return (index + 1) * 2654435761 & 0xFFFFFFFF

    def fill(self, index: int, address: int, size: int) -> None:
        """Write the pattern of a block."""
        self.bytes += size
        self.cuda.need("cuMemsetD32Async", address, self.pattern(index), size // 4, 0)

    def compare(self, index: int, address: int, size: int) -> None:
        """Count the words that differ from the pattern of a block."""
        words, pattern = size // 4, self.pattern(index)
        if self.cuda.real:
            blocks = min((words + _THREADS - 1) // _THREADS, _MOST_BLOCKS)
            arguments = (
                *(ctypes.c_uint64(address), ctypes.c_uint64(words)),
                *(ctypes.c_uint32(pattern), ctypes.c_uint64(self._counters + 4 * index)),
            )
            if status := self.cuda.launch("count_wrong", 0, blocks, _THREADS, *arguments):
                raise RuntimeError(f"count_wrong: error {status}")
        word = ctypes.c_uint32()
        for at in (0, 4 * (words - 1)):
            self.cuda.need("cuMemcpyDtoH_v2", ctypes.byref(word), address + at, 4)
            self.read_wrong += word.value != pattern

    def close(self) -> list[int]:
        """The wrong words of each block, by its index."""
        size = ctypes.sizeof(self.counts)
        if self.cuda.real:
            self.cuda.need("cuMemcpyDtoH_v2", self.counts, self._counters, size)
        self.cuda.need("cuMemFree_v2", self._counters)
        return list(self.counts)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """One row for each workload and spec, and what a word that was changed on purpose gives."""
    begun, cuda, rows, left = time.monotonic(), Cuda(), [], []
    cuda.open()
    cuda.load_kernels()
    for workload, spec in order(dry=arguments.dry):
        if time.monotonic() - begun > arguments.seconds:
            left.append([workload, spec])
            continue
        try:
            row = replay(cuda, catalog.load(workload), spec, arguments.capacity)
        except (allocators.DeviceError, allocators.SpecError, RuntimeError) as error:
            row = {"failure": str(error)}
        rows.append({"workload": workload, "allocator": spec, **row})
        print(f"{time.monotonic() - begun:.1f} s: {rows[-1]}", flush=True)
    return {"changed_on_purpose": control(cuda), "rows": rows, "left": left}


def control(cuda: Cuda) -> dict[str, int]:
    """The words found after the first word of a block was changed: one of each kind."""
    checker, address = Checker(cuda, 1), cuda.alloc(1 << 20)
    checker.fill(0, address, 1 << 20)
    cuda.need("cuMemsetD32Async", address, 0x77777777, 1, 0)
    checker.compare(0, address, 1 << 20)
    cuda.need("cuMemFree_v2", address)
    return {"read_wrong": checker.read_wrong, "compared_wrong": sum(checker.close())}


def replay(cuda: Cuda, trace: Trace, spec: str, capacity: str) -> dict[str, Any]:
    """Replay a trace with checks; the blocks and bytes checked, and the wrong words found."""
    live: dict[int, tuple[int, int, int, int]] = {}  # index, address, size, stream
    checker, failures, checked = Checker(cuda, trace.allocs), 0, 0
    begun = time.perf_counter()

    def free(block: int, stream: int) -> None:
        index, address, size, _ = live.pop(block)
        if size >= 4:
            checker.compare(index, address, size)
        allocator.deallocate(address, stream)

    with allocators.CudaDevice(0, limit=capacity) as device:
        allocator = allocators.make(spec, device)
        events = zip(*(column.tolist() for column in _columns(trace)), strict=True)
        for op, block, size, stream in events:
            if op == ALLOC:
                try:
                    address = allocator.allocate(size, stream)
                except allocators.OutOfMemory:
                    failures += 1
                    continue
                live[block] = (checked, address, size, stream)
                if size >= 4:
                    checker.fill(checked, address, size)
                checked += 1
            elif op == FREE and block in live:
                free(block, stream)
            elif op == MARK and block == trace.step_label:
                allocator.step()
        for block in list(live):
            free(block, live[block][-1])
        wrong = checker.close()
        cuda.need("cuCtxSynchronize")
    return {
        "blocks": checked,
        "bytes": checker.bytes,
        "failures": failures,
        "wrong_blocks": [[index, count] for index, count in enumerate(wrong) if count][:20],
        "wrong_words": sum(wrong),
        "read_wrong": checker.read_wrong,
        "wall_seconds": time.perf_counter() - begun,
    }


def _columns(trace: Trace) -> tuple[Any, ...]:
    return trace.op, trace.block, trace.size, trace.stream


if __name__ == "__main__":
    parser = task.new_parser(__doc__)
    parser.add_argument("--capacity", default="64GiB", help="of the allocators")
    parser.add_argument("--seconds", type=float, default=75, help="begin no replay after this")
    task.finish(parser.parse_args(), measure)
