# SPDX-License-Identifier: Apache-2.0
"""Task: how true the capture without a GPU is, and how true `caching` is to PyTorch.

The program runs twice on the GPU: on `caching`, recorded, and on PyTorch's own allocator, with its
memory history, in a process of its own. The first is compared with the bundled capture; the second,
replayed through `caching` on a simulated device, with what PyTorch itself reserved.
"""

from __future__ import annotations

import argparse
import gzip
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from allocbench import allocators
from allocbench.gpu import contestants, driving, dry, task
from allocbench.workloads import ALLOC, Provenance, Trace, catalog, read

_HISTORY = 5_000_000  # events
_KEPT = 4 << 20  # bytes: a larger snapshot is not kept


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Peaks of the captured and of the live program; events that both have; the replica."""
    program = driving.program_of(arguments.workload)
    config = program.tiny if arguments.dry else program.full
    if arguments.dry:
        memory = allocators.Program("record:of=caching")
        from allocbench.workloads.recorder import record

        recorder = record(lambda mark: program.run(config, "cpu", mark), "cpu")
        captured = recorder.trace(Provenance(name="dry"))
        dry.replay(captured, memory)
        return {"capture": compare(captured, _recorded(memory)), "replica": None}
    used = driving.begin(contestants.Contestant("recorded", "record:of=caching"))
    assert used is not None
    program.run(config, "cuda", lambda label: None)
    return {
        "capture": compare(catalog.load(arguments.workload), _recorded(used)),
        "replica": _replica(arguments),
    }


def compare(captured: Trace, live: Trace) -> dict[str, Any]:
    """Max loads, and the share of the allocs, by number and by bytes, that both traces have."""
    sizes = [Counter(trace.size[trace.op == ALLOC].tolist()) for trace in (captured, live)]
    both = sizes[0] & sizes[1]
    return {
        "max_load_captured": captured.max_load,
        "max_load_live": live.max_load,
        "max_load_error": captured.max_load / live.max_load - 1,
        "allocs_captured": captured.allocs,
        "allocs_live": live.allocs,
        "share_of_live_allocs": both.total() / live.allocs,
        "share_of_live_bytes": sum(size * n for size, n in both.items())
        / float(live.size.sum(dtype=np.float64)),
    }


def _recorded(memory: allocators.Program) -> Trace:
    found = memory.recording()
    return Trace(found.op, found.block, found.size, found.stream, found.labels)


def _replica(arguments: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's own peak of reserved bytes against that of `caching` on its snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        command = [sys.executable, "-m", "allocbench.gpu.simulation", "--native", str(path)]
        command += ["--workload", arguments.workload, "--output", os.devnull]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        reserved, requested = (int(word) for word in done.stdout.split())
        trace = read(path)
        compressed = gzip.compress(path.read_bytes())
    if len(compressed) <= _KEPT:
        arguments.output.with_suffix(".pickle.gz").write_bytes(compressed)
    gpu = allocators.CudaDevice()
    capacity = gpu.capacity
    gpu.close()
    replica = allocators.make("caching", allocators.SimulatedDevice(capacity))
    result = allocators.replay(trace, replica, samples=1)
    return {
        "events": len(trace),
        "peak_requested_torch": requested,
        "peak_requested_trace": result.stats.peak_requested,
        "peak_reserved_torch": reserved,
        "peak_reserved_replica": result.stats.peak_reserved,
        "peak_reserved_error": result.stats.peak_reserved / reserved - 1,
    }


def run_native(workload: str, path: str) -> None:
    """Run the program on PyTorch's own allocator, keep its history, print two of its peaks."""
    import torch

    program = driving.program_of(workload)
    torch.cuda.memory._record_memory_history(max_entries=_HISTORY, context=None)
    program.run(program.full, "cuda", lambda label: None)
    stats = torch.cuda.memory_stats()
    with open(path, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    print(stats["reserved_bytes.all.peak"], stats["requested_bytes.all.peak"])


def main() -> None:
    """The command line."""
    parser = task.parser(__doc__)
    parser.add_argument("--workload", choices=catalog.names(), required=True)
    parser.add_argument("--native", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.native:
        run_native(arguments.workload, arguments.native)
    else:
        task.finish(arguments, measure)


if __name__ == "__main__":
    main()
