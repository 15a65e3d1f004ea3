# SPDX-License-Identifier: Apache-2.0
"""Task: compare a captured trace with a GPU run, and `caching` with PyTorch's allocator.

The program runs twice on the GPU. The first run uses a recorded `caching`; its trace is compared
with the bundled one. The second run, in a process of its own, uses PyTorch's allocator with memory
history; its snapshot is replayed through `caching` on a simulated device, and the reserved bytes
are compared with PyTorch's.
"""

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
from allocbench.workloads import ALLOC, Trace, catalog, read
from benchmarks.workshop.gpu import contestants, driving, dry, task

_HISTORY = 5_000_000  # events
_MOST_KEPT = 4 << 20  # bytes of a compressed snapshot that is kept


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the captured with the live trace, and the reserved bytes of the replica."""
    program = driving.program_of(arguments.workload)
    config = program.tiny if arguments.dry else program.full
    if arguments.dry:
        program_memory = allocators.Program("record:of=caching")
        captured = dry.record(lambda mark: program.run(config, "cpu", mark))
        dry.replay(captured, program_memory)
        return {"capture": compare(captured, _recorded(program_memory)), "replica": None}
    memory = driving.begin(contestants.Contestant("recorded", "record:of=caching"))
    assert memory is not None
    program.run(config, "cuda", lambda label: None)
    return {
        "capture": compare(catalog.load(arguments.workload), _recorded(memory)),
        "replica": _replica(arguments),
    }


def compare(captured: Trace, live: Trace) -> dict[str, Any]:
    """Max loads, and the share of allocs (count and bytes) that both traces have."""
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
    recording = memory.recording()
    return Trace(recording.op, recording.block, recording.size, recording.stream, recording.labels)


def _replica(arguments: argparse.Namespace) -> dict[str, Any]:
    """Peak reserved bytes of PyTorch's allocator, and of `caching` on its snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        command = [
            sys.executable,
            "-m",
            "benchmarks.workshop.gpu.tasks.simulation",
            "--native",
            str(path),
        ]
        command += ["--workload", arguments.workload, "--output", os.devnull]
        process = subprocess.run(command, check=True, capture_output=True, text=True)
        reserved, requested = (int(word) for word in process.stdout.split())
        trace = read(path)
        compressed = gzip.compress(path.read_bytes())
    if len(compressed) <= _MOST_KEPT:
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
    """Run the program on PyTorch's allocator, write a snapshot, print the two peaks."""
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
    parser = task.new_parser(__doc__)
    parser.add_argument("--workload", choices=catalog.names(), required=True)
    parser.add_argument("--native", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.native:
        run_native(arguments.workload, arguments.native)
    else:
        task.finish(arguments, measure)


if __name__ == "__main__":
    main()
