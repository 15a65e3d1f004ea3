# SPDX-License-Identifier: Apache-2.0
"""A running program that gets its GPU memory from an allocator, through any library."""

from dataclasses import dataclass
from typing import Any, Self

from allocbench.allocators import _core
from allocbench.allocators._core import DeviceStats, Latency, ProgramStats, SpecError, Stats
from allocbench.allocators.devices import parse_bytes
from allocbench.allocators.observers import RecordedEvents, recording
from allocbench.allocators.spec import layers

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True)
class GpuUse:
    """A program's use of the memory of one GPU. Sizes in bytes, latencies in seconds.

    `stats` and `counters` are those of the allocator, without blocks of captured graphs, which have
    memory of their own. `program` contains latencies, requests that finally failed, and deferred
    frees; `program.totals` covers all blocks, including those of graphs. `gpu_peak_used` is the
    largest decrease of the free memory that the driver reports, including the use by other
    processes.
    """

    ordinal: int
    gpu: str
    stats: Stats
    device: DeviceStats
    counters: dict[str, int]
    program: ProgramStats
    reserved: int

    @property
    def gpu_peak_used(self) -> int:
        """Bytes."""
        return self.program.gpu_free_at_start - self.program.gpu_free_least

    def row(self) -> dict[str, Any]:
        """The measured metrics under their names in a result row."""
        stats = self.stats
        utilization = stats.peak_allocated / stats.peak_reserved if stats.peak_reserved else None
        return {
            "device_kind": "cuda",
            "peak_requested": stats.peak_requested,
            "peak_allocated": stats.peak_allocated,
            "peak_reserved": stats.peak_reserved,
            "fragmentation_ratio": None if utilization is None else 1 - utilization,
            "utilization": utilization,
            "device_calls": self.device.calls,
            "device_seconds": self.device.seconds,
            "device_seconds_source": "measured",
            "failures": self.program.failures,
            "retries": self.program.retries + stats.retries,
            **_latency("alloc", self.program.alloc),
            **_latency("free", self.program.free),
        }


class Program:
    """The GPU memory of this process, or of the libraries that are made to use it.

    spec: the allocator, optionally with wrappers. An allocator that could hand a block of one
        stream to another gets one instance per stream (`per_stream`), because nothing else keeps
        the streams of a program from overwriting each other's memory.
    limit: bytes that may be reserved on each GPU.
    poison: fill freed memory with NaNs, to expose reads of freed memory.

    Safe to use from any thread. CUDA is not called before memory is first requested. Raises
    SpecError for a wrong spec; without a GPU, the first request raises it.
    """

    def __init__(self, spec: str, *, limit: str | int | None = None, poison: bool = False) -> None:
        self.spec = spec
        limit_bytes = None if limit is None else parse_bytes(limit)
        self._core = _core.Program.start(layers(spec), limit_bytes, poison)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Return free memory to the GPUs; live blocks and the allocator stay."""
        self.trim()

    @property
    def address(self) -> int:
        """The parameter for CuPy's entry points."""
        return self._core.address

    def on(self, ordinal: int = 0) -> _core.ProgramMemory:
        """The memory on a GPU. Raises SpecError or DeviceError if the GPU is not available."""
        return self._core.on(ordinal)

    def trim(self) -> None:
        """Return free memory to the GPUs."""
        for memory in self._core.memories():
            memory.trim()

    def step(self) -> None:
        """Begin a training or inference step; `arena` and `planned` learn from steps."""
        for memory in self._core.memories():
            memory.step()

    def reset_peaks(self, ordinal: int | None = None) -> None:
        """Restart the peaks of the statistics of one GPU, or of all, at the current values."""
        for memory in self._memories(ordinal):
            memory.reset_peaks()

    def reset_counts(self, ordinal: int | None = None) -> None:
        """Reset the accumulated counts of allocs and frees to 0, on one GPU or on all."""
        for memory in self._memories(ordinal):
            memory.reset_counts()

    def _memories(self, ordinal: int | None) -> list[_core.ProgramMemory]:
        """The memory on a GPU if it was used, or on all used GPUs."""
        memories = self._core.memories()
        return [memory for memory in memories if ordinal in (None, memory.device.ordinal)]

    def close(self) -> None:
        """Give everything back, including live blocks. Later requests fail."""
        for memory in self._core.memories():
            memory.close()

    def uses(self) -> list[GpuUse]:
        """The memory use of each GPU that was used."""
        return [
            GpuUse(
                ordinal=memory.device.ordinal,
                gpu=memory.device.name,
                stats=memory.allocator.stats(),
                device=memory.device.stats(),
                counters=memory.allocator.counters(),
                program=memory.stats(),
                reserved=memory.device.reserved,
            )
            for memory in self._core.memories()
        ]

    def recording(self, ordinal: int = 0) -> RecordedEvents:
        """The requests on a GPU so far, as the arrays of a trace.

        Blocks of captured graphs are not included. Raises SpecError unless the spec has a `record`
        wrapper.
        """
        return recording(self._core.on(ordinal).allocator)


def _latency(call: str, latency: Latency) -> dict[str, Any]:
    row: dict[str, Any] = {f"{call}_count": latency.count}
    if latency.count:
        row |= {f"{call}_mean_seconds": latency.mean, f"{call}_max_seconds": latency.max}
        for name, share in PERCENTILES.items():
            row[f"{call}_{name}_seconds"] = latency.percentile(share)
    return row


__all__ = ["GpuUse", "Program", "SpecError"]
