# SPDX-License-Identifier: Apache-2.0
"""CuPy's own memory pools on the workloads; n/a without CuPy or a GPU."""

import importlib
import time
from typing import Any

from benchmarks import common
from benchmarks.packages import catalog, workloads

_PASSES = 3


class CuPy:
    """CuPy's default pool and its stream-ordered pool."""

    params: common.Params = (("MemoryPool", "MemoryAsyncPool"), common.FAST_WORKLOADS)
    param_names = ("allocator", "workload")

    def setup(self, allocator: str, workload: str) -> None:
        with common.not_there():
            self.cuda: Any = importlib.import_module("cupy").cuda
            self.trace = catalog.load(workload)
        try:
            self.cuda.runtime.getDeviceCount()
        except self.cuda.runtime.CUDARuntimeError as error:
            raise NotImplementedError(f"no GPU: {error}") from error
        self.pool = getattr(self.cuda, allocator)()

    def track_peak_reserved(self, allocator: str, workload: str) -> float:
        """Bytes that the pool holds after the workload; it never returns memory by itself."""
        if allocator == "MemoryAsyncPool":
            raise NotImplementedError("the pool is in the driver, which reports no peak")
        _serve(self.trace, self.pool)
        return float(self.pool.total_bytes())

    def track_seconds_per_event(self, allocator: str, workload: str) -> float:
        """Host seconds, including Python: the fastest of several passes after a cold one."""
        _serve(self.trace, self.pool)
        return min(_serve(self.trace, self.pool) for _ in range(_PASSES)) / len(self.trace)

    track_peak_reserved.unit = "bytes"  # type: ignore[attr-defined]
    track_seconds_per_event.unit = "seconds"  # type: ignore[attr-defined]
    track_peak_reserved.version = track_seconds_per_event.version = "1"  # type: ignore[attr-defined]


def _serve(trace: workloads.Trace, pool: Any) -> float:
    """Seconds of one pass over the trace; blocks alive at the end are dropped."""
    live: dict[int, Any] = {}
    events = list(zip(trace.op.tolist(), trace.block.tolist(), trace.size.tolist(), strict=True))
    began = time.perf_counter()
    for op, block, size in events:
        if op == workloads.ALLOC:
            live[block] = pool.malloc(size)
        elif op == workloads.FREE:
            del live[block]
    return time.perf_counter() - began
