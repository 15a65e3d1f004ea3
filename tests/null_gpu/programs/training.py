"""A few steps of a small model, in half precision with a scaler."""

import json

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(6))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for step in range(4):
    x = torch.randn(512 + 256 * (step % 2), 1024).pin_memory().to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(x), x)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
seen = {"backend": torch.cuda.get_allocator_backend()}
if seen["backend"] != "pluggable":
    statistics = torch.cuda.memory_stats()
    seen["peak allocated"] = torch.cuda.max_memory_allocated()
    seen["peak reserved"] = torch.cuda.max_memory_reserved()
    if seen["backend"] == "native":
        segments = torch.cuda.memory._snapshot()["segments"]
        seen["expandable"] = all(segment["is_expandable"] for segment in segments)
print(json.dumps(seen))
