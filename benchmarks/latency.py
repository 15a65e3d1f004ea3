# SPDX-License-Identifier: Apache-2.0
"""Host seconds of allocs and frees on the simulated device, valid only for this machine."""

import random

import numpy as np
from numpy.typing import NDArray

from benchmarks import common
from benchmarks.packages import allocators, catalog

_SAMPLES = 512
_COLUMNS = [
    *(f"{call}_{which}_seconds" for call in ("alloc", "free") for which in ("p50", "p90", "p99")),
    "alloc_p999_seconds",
    "free_p999_seconds",
    "seconds_per_event_cold",
    "seconds_per_event_steady",
]


@common.tracks(seconds_per_event_cold="seconds", seconds_per_event_steady="seconds")
class FastLatency(common.Suite):
    """Seconds per event over whole passes."""

    params: common.Params = (common.ALLOCATORS, common.FAST_WORKLOADS[:1])
    param_names = ("allocator", "workload")

    def cell(self, allocator: str, workload: str) -> common.Cell:
        return common.replay(allocator, workload, "--time", "3", "--no-min-capacity")

    def setup_cache(self) -> object:
        return self.cells()


@common.tracks(**dict.fromkeys(_COLUMNS, "seconds"))
class Latency(FastLatency):
    """Percentiles of single calls, and seconds per event."""

    params: common.Params = (common.ALLOCATORS, common.FAST_WORKLOADS + common.WORKLOADS)

    def cell(self, allocator: str, workload: str) -> common.Cell:
        return common.replay(allocator, workload, "--time", "5", "--no-min-capacity")

    def setup_cache(self) -> object:
        return self.cells()


class Calls:
    """Single calls as samples, for asv's own statistics; needs the plugin in asv_plugin/.

    Without it asv ignores these benchmarks; `Latency` has the percentiles.
    """

    params: common.Params = (common.ALLOCATORS, common.FAST_WORKLOADS)
    param_names = ("allocator", "workload")

    def setup(self, allocator: str, workload: str) -> None:
        """Time every call of the third pass over a new allocator."""
        with common.not_there():
            trace = catalog.load(workload)
            instance = allocators.make(allocator, allocators.make_device(common.DEVICE))
        for _ in range(2):
            allocators.time_pass(trace, instance)
        self.alloc, self.free, _ = allocators.time_each(trace, instance)

    def latency_alloc(self, allocator: str, workload: str) -> list[float]:
        return _drawn(self.alloc)

    def latency_free(self, allocator: str, workload: str) -> list[float]:
        return _drawn(self.free)

    latency_alloc.version = latency_free.version = "2"  # type: ignore[attr-defined]


def _drawn(seconds: NDArray[np.float32]) -> list[float]:
    """A fixed number of samples, drawn evenly and deterministically."""
    samples: list[float] = seconds.tolist()
    return random.Random(0).sample(samples, min(_SAMPLES, len(samples)))
