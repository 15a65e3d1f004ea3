"""Captured graphs and memory pools: private_pools.py KIND."""

import gc
import json
import sys

import torch

MIB = 1 << 20
kind = sys.argv[1]


def block(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def capture(pool=None):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        a = block(3)
        b = block(12)
        del a
        c = block(2)
        kept = b[:5] + c[:5]
    return graph, kept


def graphs():
    """Two graphs share a pool, a third has its own; the first two are reset."""
    first, one = capture()
    second, two = capture(first.pool())
    third, three = capture()
    outside = block(30)
    del one, two, outside
    first.reset()
    torch.cuda.empty_cache()
    second.reset()
    torch.cuda.empty_cache()
    third.replay()
    return [first, second, third, three]


def memory_pool():
    """A MemPool that is entered twice and then given back."""
    pool = torch.cuda.MemPool(use_on_oom=True)
    for _ in range(2):
        with torch.cuda.use_mem_pool(pool):
            inside = block(4)
        outside = block(4)
    del inside, outside
    torch.cuda.synchronize()
    del pool
    gc.collect()
    return block(6)


def graphed_callables():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 9))
    model = model.cuda()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(8, 256, device="cuda"),))
    for _ in range(3):
        graphed(torch.randn(8, 256, device="cuda")).sum().backward()
    return graphed


def reduce_overhead():
    model = torch.nn.Linear(1024, 1024).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            compiled(torch.randn(64, 1024, device="cuda")).clone()
    return compiled


kept = globals()[kind]()
print(json.dumps({"reserved": torch.cuda.memory_reserved()}))
