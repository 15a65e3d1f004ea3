"""torch.compile: Triton's kernels in training, captured graphs in inference."""

import json

import torch
from torch import nn

layers = (nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)) for _ in range(2))
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters())
training = torch.compile(model)
for _ in range(2):
    training(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
from torch._inductor import metrics  # noqa: E402

seen = {"kernels": metrics.generated_kernel_count}
inference = torch.compile(model, mode="reduce-overhead")
with torch.no_grad():
    for _ in range(3):
        inference(torch.randn(64, 256, device="cuda"))
pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory._snapshot()["segments"]}
seen["pools"] = len(pools)
seen["requested"] = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
print(json.dumps(seen))
