"""Objects and small tensors that ranks send each other; two ranks, or the one of RANK."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.optim  # compiled by TorchScript
from torch.distributed.device_mesh import init_device_mesh


def start(ranks):
    """Run this program once for each rank, and return what each of them printed."""
    processes = []
    for rank in range(ranks):
        environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
        command = [sys.executable, __file__, *sys.argv[1:]]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
    printed = [process.communicate()[0] for process in processes]
    assert not any(process.returncode for process in processes)
    return [json.loads(text.splitlines()[-1]) for text in printed]


def sent_to_one(rank, own):
    """What arrives from the other of two ranks: both at once, then one after the other."""
    both = []
    for turn in range(2):
        got = torch.empty_like(own)
        sends = dist.P2POp(dist.isend, own + 100 * turn, 1 - rank)
        works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, 1 - rank), sends])
        for work in works:
            work.wait()
        both.append(got.tolist())
    if rank == 0:
        dist.send(torch.tensor([True, False], device="cuda"), 1)
        dist.send(own.float(), 1)
        return both
    flags, floats = torch.zeros(2, dtype=torch.bool, device="cuda"), torch.ones(2, device="cuda")
    dist.recv(flags, 0)
    dist.recv(floats, 0)
    return [*both, flags.tolist(), floats.tolist()]


def numbers(rank, world):
    """What collectives of tensors give whose values each rank knows."""
    torch.randn(8, device="cuda").sum()
    own = torch.tensor([10 + rank, 20 + rank], device="cuda")
    seen, parts, whole = {}, [torch.empty_like(own) for _ in range(world)], torch.zeros(world, 2)
    dist.all_gather(parts, own)
    seen["all_gather"] = torch.stack(parts).tolist()
    whole = whole.long().cuda()
    dist.all_gather_into_tensor(whole, own)
    seen["whole"] = whole.tolist()
    for name in ("SUM", "MAX"):
        dist.all_reduce(reduced := own.clone(), getattr(dist.ReduceOp, name))
        seen[name] = reduced.tolist()
    mean = own.double()
    dist.all_reduce(mean, dist.ReduceOp.AVG, async_op=True).wait()
    seen["mean"] = mean.tolist()
    dist.reduce(reduced := own.clone(), dst=1)
    seen["reduce"] = reduced.tolist() if rank == 1 else None
    dist.broadcast(sent := own.clone(), src=1)
    seen["broadcast"] = sent.tolist()
    if world == 2:
        dist.all_to_all_single(turned := torch.empty_like(own), own)
        seen["all_to_all"] = turned.tolist()
        seen["sent"] = sent_to_one(rank, own)
    dist.all_reduce(
        mixed := own * (torch.empty(2, device="cuda").geometric_(0.5) > 5 if rank else 1)
    )
    seen["not known by all"] = mixed.tolist()
    dist.scatter(
        scattered := torch.ones(2, device="cuda"), [own.float()] * world if not rank else None
    )
    seen["not followed"] = scattered.tolist()
    return seen


def exchange(rank, world):
    seen = {"numbers": numbers(rank, world)}
    seen["all_gather"] = [None] * world
    dist.all_gather_object(seen["all_gather"], f"of {rank}")
    seen["gather"] = [None] * world if rank == 1 else None
    dist.gather_object({"rank": rank}, seen["gather"], dst=1)
    seen["broadcast"] = ["x" * 100_000, rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(seen["broadcast"], src=0)
    seen["broadcast"][0] = len(seen["broadcast"][0] or "")
    seen["scatter"] = [None]
    inputs = [f"for {other}" for other in range(world)] if rank == 1 else None
    dist.scatter_object_list(seen["scatter"], inputs, src=1)
    seen["received"] = [None, None]
    if rank == 0:
        dist.send_object_list([1, 2], dst=1)
    else:
        assert dist.recv_object_list(seen["received"], src=0) == 0
    group = dist.new_group([1])
    if rank == 1:
        seen["one"] = [None]
        dist.all_gather_object(seen["one"], "alone", group=group)
    seen["peak"] = torch.cuda.max_memory_allocated()
    return seen


if "RANK" in os.environ:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    if sys.argv[1] == "mesh":
        init_device_mesh("cuda", (world,))  # makes a process group
    else:
        store = f"file://{Path(sys.argv[1]) / 'store'}"
        dist.init_process_group("nccl", init_method=store, rank=rank, world_size=world)
    print(json.dumps(exchange(rank, world)))
    dist.destroy_process_group()
else:
    print(json.dumps({"ranks": start(2)}))
