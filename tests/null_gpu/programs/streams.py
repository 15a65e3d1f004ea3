"""Streams, events, captured graphs, and memory pools."""

import json

import torch
from torch import nn

seen = {}
a = torch.randn(1 << 20, device="cuda")
side, begin, end = (
    torch.cuda.Stream(priority=-1),
    *(torch.cuda.Event(enable_timing=True) for _ in range(2)),
)
begin.record()
with torch.cuda.stream(side):
    b = a * 2
    a.record_stream(side)
end.record()
end.synchronize()
seen["events"] = begin.elapsed_time(end) > 0 and end.query() and side.query()
seen["priority"] = side.priority
seen["stream in snapshot"] = side.cuda_stream in {
    segment["stream"] for segment in torch.cuda.memory._snapshot()["segments"]
}

model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
x = torch.randn(64, 512, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad()
with torch.cuda.graph(graph):
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    seen["capturing"] = torch.cuda.is_current_stream_capturing()
graph.replay()
pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory._snapshot()["segments"]}
seen["pools"] = len(pools)

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = torch.empty(4 << 20, device="cuda")
pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory._snapshot()["segments"]}
seen["pool"] = tuple(pool.id) in pools
del inside, pool

# The last: after a capture that failed, PyTorch 2.9 to 2.11 cannot free a pool.
broken = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(broken):
        (x + 1).sum().item()
except RuntimeError as error:
    seen["reading while capturing"] = "captur" in str(error)
print(json.dumps(seen))
