"""One rank of a program of several: DDP, FSDP, collectives."""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # PyTorch 2.5
    from torch.distributed._composable.fsdp import fully_shard

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
dist.init_process_group("nccl")
seen = {"rank": dist.get_rank(), "world": dist.get_world_size()}
seen["device"] = torch.cuda.current_device()
ones = torch.ones(10, device="cuda")
dist.all_reduce(ones)
dist.barrier()

model = nn.parallel.DistributedDataParallel(nn.Linear(512, 512).cuda())
model(torch.randn(4, 512, device="cuda")).sum().backward()
synchronized = nn.SyncBatchNorm(4).cuda()
synchronized(torch.randn(2, 4, 3, device="cuda")).sum().backward()
del model, synchronized
torch.cuda.empty_cache()

layers = nn.Sequential(*(nn.Linear(2048, 2048, bias=False, device="cuda") for _ in range(4)))
seen["whole"] = sum(parameter.nbytes for parameter in layers.parameters())
for layer in layers:
    fully_shard(layer)
fully_shard(layers)
local = [parameter.to_local() for parameter in layers.parameters()]
seen["shard"] = sum(parameter.nbytes for parameter in local)
optimizer = torch.optim.AdamW(layers.parameters())
layers(torch.randn(4, 2048, device="cuda")).sum().backward()
optimizer.step()
seen["peak"] = torch.cuda.max_memory_allocated()
first = FullyShardedDataParallel(nn.Linear(512, 512).cuda())
first(torch.randn(4, 512, device="cuda")).sum().backward()
dist.destroy_process_group()
path = os.environ.get("SEEN")
if path:
    with open(f"{path}-{rank}.json", "w") as file:
        json.dump(seen, file)
else:
    print(json.dumps(seen))
