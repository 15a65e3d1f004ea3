# SPDX-License-Identifier: Apache-2.0
"""PyTorch's CUDACachingAllocator in a process of its own, on a null GPU.

The process has PyTorch's CUDA build and NumPy only. It reads a JSON object with `events`,
`capacity` and `placements` from each line of its input, and answers with a line: `completes`,
`reserved`, the peak in bytes, and `calls`, those to the device. `placements` is the file that gets
the addresses of the allocs, or null.
"""

import ctypes
import json
import os
import sys

import numpy as np
import torch

ALLOC, FREE = 0, 1
GPU = ctypes.CDLL(json.loads(os.environ["ALLOCBENCH_NULL"])["core"])
allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
free = torch._C._cuda_cudaCachingAllocator_raw_delete
streams = [0]


def taken_away(size):
    """Memory of the GPU that PyTorch does not have; its address."""
    segment = ctypes.c_void_p()
    if size and GPU.null_cudaMalloc(ctypes.byref(segment), ctypes.c_size_t(size)):
        raise RuntimeError("the null GPU has less memory than a task needs")
    return segment


def run(events, capacity, placements):
    """Replay the events with `capacity` bytes of the GPU."""
    arrays = np.load(events)
    op, block, size = (arrays[name].tolist() for name in ("op", "block", "size"))
    stream = arrays["stream"].tolist()
    while len(streams) <= max(stream):
        streams.append(torch.cuda.Stream())
    handles = [getattr(one, "cuda_stream", one) for one in streams]
    room, _ = torch.cuda.mem_get_info()
    segment = taken_away(room - capacity)
    torch.cuda.reset_peak_memory_stats()
    before = calls()
    live, found, completes = {}, [], True
    for event, (kind, one) in enumerate(zip(op, block, strict=True)):
        if kind == ALLOC:
            try:
                live[one] = allocate(size[event], handles[stream[event]])
            except torch.cuda.OutOfMemoryError:
                completes = False
                if placements is None:
                    break
                live[one] = 0
            found.append(live[one])
        elif kind == FREE and live.get(one):
            free(live.pop(one))
    seen = {"reserved": torch.cuda.memory_stats()["reserved_bytes.all.peak"]}
    seen["calls"] = calls() - before
    for address in live.values():
        if address:
            free(address)
    torch.cuda.empty_cache()
    GPU.null_cudaFree(segment)
    if placements is not None:
        np.save(placements, np.array(found, np.uint64))
    return seen | {"completes": completes}


def calls():
    """Device calls so far."""
    statistics = torch.cuda.memory_stats()
    return statistics["num_device_alloc"] + statistics["num_device_free"]


torch.cuda.init()
torch.cuda.current_stream()
for line in sys.stdin:
    print(json.dumps(run(**json.loads(line))), flush=True)
