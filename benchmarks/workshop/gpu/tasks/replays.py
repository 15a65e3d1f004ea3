# SPDX-License-Identifier: Apache-2.0
"""Task: captured traces through every strategy on the GPU, and on a simulated device.

Bytes and counts must be equal, except those of `cuda_async`, whose pool is a model on the simulated
device; the seconds of device calls are measured on the one and estimated on the other.
"""

import argparse
import hashlib
import time
from collections.abc import Iterator
from typing import Any

from allocbench import allocators
from allocbench.replays.runner import assumed
from allocbench.workloads import Trace, catalog
from benchmarks.workshop.gpu import contestants, task
from benchmarks.workshop.gpu.programs import captured

_STATS = (
    *("requested", "allocated", "reserved", "peak_requested", "peak_allocated", "peak_reserved"),
    *("allocations", "frees", "failures", "retries"),
)
_CALLS = ("malloc_calls", "free_calls", "map_calls", "unmap_calls", "refused_calls")
_MOMENT = ("event", "requested", "allocated", "reserved", "largest_free")
_MEANS = ("internal_fragmentation_mean", "external_fragmentation_mean")
_SLOW = "naive"
"""Calls the device for each event, so it comes last."""


def order(*, dry: bool) -> Iterator[tuple[str, str]]:
    """Workloads and specs: every strategy with the main workloads first."""
    specs = [who.spec for who in contestants.ours() if who.spec is not None]
    main, others = captured(), captured(main=False)
    if dry:
        main, others, specs = main[:1], [], ["caching", "expandable", "cuda_async", "naive"]
    for group in (main[:1], main[1:], others):
        yield from ((name, spec) for name in group for spec in specs if spec != _SLOW)
        if group == main[:1]:
            yield from ((name, _SLOW) for name in group)
    yield from ((name, _SLOW) for name in (*main[1:], *others))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """One row for each workload and spec; `left` names those for which there was no time."""
    begun, rows, left, traces = time.monotonic(), [], [], dict[str, Trace]()
    for workload, spec in order(dry=arguments.dry):
        if time.monotonic() - begun > arguments.seconds:
            left.append([workload, spec])
            continue
        if workload not in traces:
            traces[workload] = catalog.load(workload)
        row = _row(traces[workload], spec, arguments.capacity)
        rows.append({"workload": workload, "allocator": spec, **row})
        different = row.get("differs")
        print(f"{time.monotonic() - begun:.1f} s: {workload} {spec}: {different}", flush=True)
    return {"capacity": arguments.capacity, "rows": rows, "left": left}


def _row(trace: Trace, spec: str, capacity: str) -> dict[str, Any]:
    try:
        with allocators.CudaDevice(0, limit=capacity) as device:
            real = _values(trace, spec, device)
        simulated = _values(trace, spec, allocators.SimulatedDevice(capacity))
    except (allocators.DeviceError, allocators.SpecError) as error:
        return {"failure": str(error)}
    differs = [
        name
        for name in real
        if name != "wall_seconds"
        and not name.startswith("device_")
        and real[name] != simulated[name]
    ]
    return {"gpu": real, "simulated": simulated, "differs": differs}


def _values(trace: Trace, spec: str, device: allocators.Device) -> dict[str, Any]:
    """All counts of a replay, the digest of its placements, and its seconds."""
    digest = hashlib.sha256()

    def placed(columns: Any) -> None:
        for column in columns.values():
            digest.update(column.tobytes())

    begun = time.perf_counter()
    result = allocators.replay(
        trace, allocators.make(spec, device), samples=1, placements=placed, keep=True
    )
    return {
        **{name: getattr(result.stats, name) for name in _STATS},
        **{name: getattr(result.device, name) for name in _CALLS},
        **{f"peak_{name}": getattr(result.peak, name) for name in _MOMENT},
        **{name: getattr(result, name) for name in _MEANS},
        "placements": digest.hexdigest()[:16],
        "counters": result.counters,
        "device_seconds": result.device.seconds,
        **assumed(device, result.device),
        "wall_seconds": time.perf_counter() - begun,
    }


if __name__ == "__main__":
    parser = task.new_parser(__doc__)
    parser.add_argument("--capacity", default="64GiB", help="of both devices")
    parser.add_argument("--seconds", type=float, default=130, help="begin no replay after this")
    task.finish(parser.parse_args(), measure)
