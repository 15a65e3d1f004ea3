"""Memory snapshots with their history, one of each kind: recordings.py FOLDER KIND...

Random requests through PyTorch's own allocator. The settings are those of PYTORCH_CUDA_ALLOC_CONF.
"""

import contextlib
import gc
import json
import pickle
import random
import sys
from pathlib import Path

import torch

KIB, MIB = 1 << 10, 1 << 20
memory = torch.cuda.memory


class Load:
    """Random requests, with up to `live` blocks at a time; with several streams, each on one."""

    def __init__(self, seed, live=24, streams=1, device=0):
        self.random, self.most, self.device = random.Random(seed), live, device
        self.live = []
        others = [torch.cuda.Stream(device) for _ in range(streams - 1)]
        self.streams = [torch.cuda.default_stream(device), *others] if others else [None]

    def size(self):
        draw = self.random
        return draw.choice(
            [
                512 * draw.randint(1, 64),
                draw.randint(1, MIB),
                KIB * draw.randint(1, 900),
                draw.randint(MIB, 9 * MIB),
                draw.randint(10 * MIB, 40 * MIB),
                MIB * draw.randint(2, 40),
            ]
        )

    def step(self, events):
        for _ in range(events):
            if self.live and (len(self.live) >= self.most or self.random.random() < 0.42):
                self.live.pop(self.random.randrange(len(self.live)))
                continue
            chosen = self.random.choice(self.streams)
            with torch.cuda.device(self.device), torch.cuda.stream(chosen):
                self.request(self.size())
        return self

    def request(self, size):
        with contextlib.suppress(torch.OutOfMemoryError):
            self.live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))

    def use_elsewhere(self):
        for tensor in self.live:
            if self.random.random() < 0.3:
                tensor.record_stream(self.random.choice(self.streams))


def start(entries=1 << 20):
    memory._record_memory_history(max_entries=entries, context=None)


def captured(load, events, pool=None):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        load.step(events)
    return graph


def cold():
    start()
    return Load(1).step(300)


def warm():
    load = Load(2).step(200)
    start()
    return load.step(300)


def to_nothing():
    """Begins warm and ends with nothing."""
    load = Load(3).step(150)
    start()
    load.step(100).live.clear()
    torch.cuda.empty_cache()


def empty_cache():
    start()
    load = Load(4)
    for _ in range(4):
        load.step(80)
        torch.cuda.empty_cache()
    return load


def overflow():
    """More events than the history keeps."""
    load = Load(5).step(100)
    start(entries=150)
    load.step(150)
    torch.cuda.empty_cache()
    return load.step(150)


def streams():
    load = Load(7, streams=3).step(100)
    load.use_elsewhere()
    load.step(20)
    start()
    for _ in range(5):
        load.step(60).use_elsewhere()
    load.live.clear()


def two_snapshots():
    start()
    load = Load(8).step(100)
    memory._snapshot()
    return load.step(100)


def medium():
    """Begins warm; the requests share segments of large_segment_size_mb."""
    load = Load(27, live=40)
    load.size = lambda: load.random.randint(MIB + 1, 10 * MIB - 1)
    load.step(60)
    start()
    load.step(100)
    torch.cuda.empty_cache()
    return load.step(100)


def large():
    """Begins warm; free blocks of many sizes are larger than max_split_size_mb."""
    load = Load(28, live=6)
    load.size = lambda: load.random.randint(16 * MIB, 120 * MIB)
    load.step(30)
    start()
    return load.step(120)


def graphs():
    """Two captured graphs, and empty_cache between and after them."""
    load = Load(9).step(60)
    start()
    load.step(40)
    one = Load(10, live=8)
    first = captured(one, 60)
    torch.cuda.empty_cache()
    load.step(60)
    two = Load(11, live=8)
    second = captured(two, 60)
    load.step(40)
    one.live.clear()
    torch.cuda.empty_cache()
    return load.step(60), first, second, two


def graph_before():
    """A graph that was captured before the history began."""
    one = Load(20, live=8)
    graph = captured(one, 60)
    start()
    load = Load(21).step(60)
    torch.cuda.empty_cache()
    return load.step(60), graph, one


def graphs_in_one_pool():
    load = Load(14).step(30)
    start()
    kept, pool = [], torch.cuda.graph_pool_handle()
    for n in range(4):
        one = Load(15 + n, live=6)
        kept.append((captured(one, 40, pool), one))
        one.live = one.live[:2]
        load.step(30)
        torch.cuda.empty_cache()
    return load, kept


def graph_released():
    load = Load(12)
    start()
    load.step(60)
    one = Load(13, live=8)
    graph = captured(one, 60)
    load.step(30)
    one.live.clear()
    del graph
    gc.collect()
    load.step(30)
    torch.cuda.empty_cache()
    return load.step(60)


def memory_pool():
    start()
    load, one, pool = Load(22).step(60), Load(23, live=8), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        one.step(60)
    load.step(30)
    torch.cuda.empty_cache()
    load.step(30)
    with torch.cuda.use_mem_pool(pool):
        one.step(40)
    one.live.clear()
    torch.cuda.empty_cache()
    load.step(30)
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    return load.step(30)


def two_devices():
    start()
    loads = Load(25), Load(26, device=1)
    for _ in range(4):
        for load in loads:
            load.step(40)
    torch.cuda.empty_cache()
    return [load.step(40) for load in loads]


folder, *kinds = sys.argv[1:]
for kind in kinds:
    kept = globals()[kind]()
    snapshot = memory._snapshot()
    Path(folder, f"{kind}.pickle").write_bytes(pickle.dumps(snapshot, protocol=4))
    memory._record_memory_history(enabled=None)
    del kept
    gc.collect()
    torch.cuda.empty_cache()
print(json.dumps(kinds))
