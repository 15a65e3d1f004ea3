"""Effects of an allocator on programs; each check has a process, forked from this one.

Prints what each check returned as JSON. Nothing in a check depends on where an allocator places a
block, so PyTorch's own allocator and all of allocbench's must return the same.
"""

import gc
import json
import multiprocessing
import os
import sys
import threading
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MIB = 1 << 20
warnings.simplefilter("ignore")
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def taken(mib, device="cuda"):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=device)


def outcome(function):
    """The name of the exception that a call raises, and the beginning of its text; or "none"."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:19]}"
    return "none"


def requested():
    stats = torch.cuda.memory_stats()
    flows = ("current", "peak", "allocated", "freed")
    return [stats[f"requested_bytes.all.{flow}"] for flow in flows]


@check
def basics():
    numbers = torch.arange(1000.0)
    there = numbers.cuda()
    seen = {"copied": torch.equal(there.cpu(), numbers), "device": str(there.device)}
    seen["moved"] = torch.equal(there.clone().cpu(), numbers)
    seen["requested"] = requested()
    del there
    for _ in range(2):
        empty = [torch.empty(0, device="cuda") for _ in range(3)]
    seen["addresses of nothing"] = [each.data_ptr() for each in empty]
    seen["requested after"], seen["allocated"] = requested(), torch.cuda.memory_allocated()
    seen["counts"] = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.empty_cache()
    return seen


@check
def out_of_memory():
    kept = torch.arange(1000.0).cuda()
    seen = {"errors": [outcome(lambda: taken(4096)) for _ in range(2)]}
    seen["survived"] = kept.cpu().tolist() == torch.arange(1000.0).tolist()
    seen["ooms"] = torch.cuda.memory_stats()["num_ooms"]
    seen["again"] = outcome(lambda: taken(200))
    seen["requested"] = requested()
    return seen


@check
def streams():
    side = torch.cuda.Stream()
    x = torch.arange(1000.0).cuda()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = torch.empty_like(x)
        y.copy_(x)
    x.record_stream(side)
    y.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    seen = {"values": y.cpu().tolist() == list(range(1000))}
    del x, y
    torch.cuda.synchronize()
    taken(1)
    seen["requested"] = requested()
    return seen


@check
def captured_graphs():
    """A graph keeps its memory regardless of what else the program does."""
    x = torch.ones(4 * MIB, device="cuda")
    y = torch.zeros_like(x)
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = torch.empty_like(x)
        inside.copy_(x)
        y.copy_(inside)
        seen = {"capturing": torch.cuda.is_current_stream_capturing()}
        del inside
    graph.replay()
    kept = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    graph.replay()
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        y.copy_(x)
    seen["error"] = outcome(lambda: taken(4096))
    graph.replay()
    second.replay()
    seen["memory of the graph stays"] = kept - torch.cuda.memory_reserved() < 16 * MIB
    torch.cuda.synchronize()
    graph.reset()
    del graph, second
    gc.collect()
    torch.cuda.empty_cache()
    # A replay after the reset would be an error of the program.
    seen["memory of the graph goes"] = kept - torch.cuda.memory_reserved() >= 16 * MIB
    return seen


@check
def out_of_memory_in_a_capture():
    """An error ends the capture, and the next capture works."""
    x = torch.ones(MIB, device="cuda")
    seen = {}
    graph = torch.cuda.CUDAGraph()

    def capture(mib):
        with torch.cuda.graph(graph):
            part = taken(mib)
            part[: x.nbytes].copy_(x.view(torch.uint8))

    seen["first"] = outcome(lambda: capture(4096))
    graph = torch.cuda.CUDAGraph()
    seen["second"] = outcome(lambda: capture(100))
    graph.replay()
    torch.cuda.synchronize()
    return seen


@check
def out_of_memory_survived_in_a_capture():
    """Free space in the graph's memory serves the program's smaller requests."""
    x = torch.ones(MIB, device="cuda")
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        part = taken(800)
        part[: x.nbytes].copy_(x.view(torch.uint8))
        del part
        seen = {"more": outcome(lambda: taken(1000))}
        part = None

        def less():
            nonlocal part
            part = taken(700)
            part[: x.nbytes].copy_(x.view(torch.uint8))

        seen["less"] = outcome(less)
    graph.replay()
    torch.cuda.synchronize()
    return seen


@check
def out_of_memory_during_a_capture():
    """Another thread runs out of memory while a graph is captured, and continues with less."""
    x = torch.ones(MIB, device="cuda")
    cached = [taken(300)]
    begun, done = threading.Event(), threading.Event()
    seen = {}

    def other():
        begun.wait()
        cached.clear()
        seen["more"] = outcome(lambda: taken(4096))
        seen["less"] = outcome(lambda: taken(300))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        begun.set()
        done.wait()
        x.copy_(x)
        x.add_(1)
    thread.join()
    graph.replay()
    torch.cuda.synchronize()
    return seen


@check
def before_cuda():
    """Reading statistics does not initialize CUDA, so the GPUs can still be chosen."""
    seen = {"allocated": torch.cuda.memory_allocated(), "stats": torch.cuda.memory_stats()}
    torch.cuda.empty_cache()
    seen["started"] = torch.cuda.is_initialized()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    seen["devices"] = torch.cuda.device_count()
    seen["computed"] = torch.ones(3).cuda().shape[0]
    return seen


def _ones(queue):
    queue.put(torch.ones(10).cuda().numel())


@check
def forked():
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_ones, args=(queue,))
    child.start()
    child.join()
    return {"code": child.exitcode, "numel": queue.get()}


@check
def loader():
    kept = taken(1)
    data = TensorDataset(torch.arange(100.0))
    batches = DataLoader(data, batch_size=10, num_workers=2, pin_memory=True)
    seen = {"sum": sum(b.to("cuda", non_blocking=True).cpu().sum().item() for (b,) in batches)}
    seen["kept"] = kept.numel()
    return seen


@check
def a_fraction():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(512 * MIB / total)
    seen = {"beyond": outcome(lambda: taken(600)), "below": outcome(lambda: taken(200))}
    torch.cuda.set_per_process_memory_fraction(1.0)
    seen["after"] = outcome(lambda: taken(600))
    return seen


@check
def two_gpus():
    x = torch.arange(1000.0, device="cpu").to("cuda:0")
    side = torch.cuda.Stream(device=1)
    x.record_stream(side)
    x.record_stream(torch.cuda.default_stream(1))
    y = x.to("cuda:1")
    seen = {"values": y.cpu().tolist() == list(range(1000))}
    seen["requested"] = [
        torch.cuda.memory_stats(gpu)["requested_bytes.all.peak"] for gpu in range(2)
    ]
    del x, y
    seen["errors"] = [outcome(lambda gpu=gpu: taken(4096, f"cuda:{gpu}")) for gpu in range(2)]
    for gpu in range(2):
        torch.cuda.synchronize(gpu)
        taken(1, f"cuda:{gpu}")
    seen["active"] = [torch.cuda.memory_stats(gpu)["active.all.current"] for gpu in range(2)]
    return seen


def _model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()


@check
def training():
    """Autocast, GradScaler, workers, a step as a graph, and a batch that is too large."""
    torch.manual_seed(0)
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    scaler = torch.amp.GradScaler("cuda")
    data = TensorDataset(torch.ones(64, 64))
    seen = {"ooms": 0, "steps": 0}

    def step(batch):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):
        for (batch,) in DataLoader(data, batch_size=16, num_workers=1, pin_memory=True):
            step(batch.to("cuda", non_blocking=True))
            seen["steps"] += 1
        try:
            step(torch.ones(MIB, 64, device="cuda").repeat(1, 2)[:, :64] + taken(4096))
        except torch.OutOfMemoryError:
            seen["ooms"] += 1
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()

    static, side = torch.ones(16, 64, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def plain():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss = model(static).sum()
        loss.backward()
        optimizer.step()

    with torch.cuda.stream(side):
        for _ in range(3):
            plain()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plain()
    for _ in range(3):
        static.copy_(torch.ones(16, 64))
        graph.replay()
    seen["after"] = outcome(lambda: taken(4096))
    graph.replay()
    torch.cuda.synchronize()
    seen["gradients"] = [list(each.grad.shape) for each in model.parameters()]
    return seen


def _rank(rank, queue, end):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(_model(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ooms = 0
    for _ in range(2):
        model(torch.ones(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        ooms += outcome(lambda: taken(4096)).startswith("OutOfMemoryError: CUDA out of memory")
    queue.put((rank, torch.cuda.current_device(), ooms))
    end.wait()  # rank 0 has the store
    dist.destroy_process_group()


@check
def distributed():
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    end = context.Barrier(2, timeout=100)
    ranks = [context.Process(target=_rank, args=(rank, queue, end)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    codes = [rank.exitcode for rank in ranks]
    return {"codes": codes, "ranks": sorted(queue.get() for _ in ranks) if not any(codes) else []}


def _run(name, queue):
    queue.put(CHECKS[name]())


def main():
    seen, context = {}, multiprocessing.get_context("fork")
    for name in sys.argv[1:] or CHECKS:
        queue = context.SimpleQueue()
        process = context.Process(target=_run, args=(name, queue))
        process.start()
        process.join()
        ended = process.exitcode
        seen[name] = queue.get() if ended == 0 else f"ended with exit code {ended}"
    print(json.dumps(seen), flush=True)
    # At the exit of the interpreter, blocks, a stream's use of one, and a graph are still there.
    global kept
    kept = [taken(1) for _ in range(2)], torch.cuda.Stream(), torch.cuda.CUDAGraph()
    kept[0][0].record_stream(kept[1])
    with torch.cuda.graph(kept[2]):
        kept[0][1].copy_(kept[0][0])


if __name__ == "__main__":
    main()
