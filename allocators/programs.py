# SPDX-License-Identifier: Apache-2.0
"""A running program whose GPU memory comes from an allocator, whatever library asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from allocbench.allocators import _core, factory
from allocbench.allocators._core import DeviceStats, Latency, Seen, SpecError, Stats
from allocbench.allocators.devices import parse_bytes
from allocbench.allocators.observers import Recording, recording

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True)
class GpuUse:
    """What a program has done with the memory of one GPU. Sizes in bytes, latencies in seconds.

    `stats` and `counters` are the allocator's; blocks of captured graphs are not in them. `seen`
    has what the program met with: latencies, requests that failed for good, deferred frees.
    `gpu_peak_used` is the most that left the GPU's free memory since the start, other processes'
    use included, as the driver tells it.
    """

    ordinal: int
    gpu: str
    stats: Stats
    device: DeviceStats
    counters: dict[str, int]
    seen: Seen
    reserved: int

    @property
    def gpu_peak_used(self) -> int:
        """Bytes."""
        return self.seen.gpu_free_at_start - self.seen.gpu_free_least

    def row(self) -> dict[str, Any]:
        """The measured metrics under the names of a result row."""
        stats = self.stats
        return {
            "device_kind": "cuda",
            "peak_requested": stats.peak_requested,
            "peak_allocated": stats.peak_allocated,
            "peak_reserved": stats.peak_reserved,
            "utilization": stats.peak_allocated / stats.peak_reserved
            if stats.peak_reserved
            else None,
            "device_calls": self.device.calls,
            "device_seconds": self.device.seconds,
            "device_seconds_source": "measured",
            "failures": self.seen.failures,
            "retries": self.seen.retries + stats.retries,
            **_latency("alloc", self.seen.alloc),
            **_latency("free", self.seen.free),
        }


class Program:
    """The GPU memory of this process, or of what in it was told to ask here.

    spec: the allocator, with wrappers if wanted. One that would hand a block of one stream to
        another gets an instance for each stream (`per_stream`), as nothing else keeps the streams
        of a program from writing over each other.
    limit: bytes of each GPU that may be reserved.
    poison: fill freed memory with NaNs, so that who still reads it notices.

    Safe to use from any thread. Raises SpecError for a spec that is wrong or no GPU.
    """

    def __init__(self, spec: str, *, limit: str | int | None = None, poison: bool = False) -> None:
        self.spec = spec
        most = None if limit is None else parse_bytes(limit)
        self._core = _core.Program.start(factory.layers(spec), most, poison)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Free memory goes back to the GPUs; blocks that live stay, and so does the allocator."""
        self.trim()

    @property
    def address(self) -> int:
        """What CuPy's entry points take as their parameter."""
        return self._core.address

    def on(self, ordinal: int = 0) -> _core.ProgramMemory:
        """The memory on a GPU; raises SpecError or DeviceError when it cannot be had."""
        return self._core.on(ordinal)

    def trim(self) -> None:
        """Give free memory back to the GPUs."""
        for memory in self._core.memories():
            memory.trim()

    def step(self) -> None:
        """A training or inference step begins, which `arena` and others learn from."""
        for memory in self._core.memories():
            memory.step()

    def reset_peaks(self) -> None:
        """Peaks of the statistics begin again from now."""
        for memory in self._core.memories():
            memory.reset_peaks()

    def close(self) -> None:
        """Take everything back, blocks that live too; requests fail from then on."""
        for memory in self._core.memories():
            memory.close()

    def uses(self) -> list[GpuUse]:
        """What was done so far, for each GPU that was used."""
        return [
            GpuUse(
                ordinal=memory.device.ordinal,
                gpu=memory.device.name,
                stats=memory.allocator.stats(),
                device=memory.device.stats(),
                counters=memory.allocator.counters(),
                seen=memory.seen(),
                reserved=memory.device.reserved,
            )
            for memory in self._core.memories()
        ]

    def recording(self, ordinal: int = 0) -> Recording:
        """What was asked for on a GPU so far, as the arrays of a trace.

        Raises SpecError unless the spec has a `record` layer; blocks of captured graphs are not
        in it.
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
