# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "bitsandbytes==0.50.2",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""A layer with weights of 4 bits; training with an optimizer whose states have 8 bits."""

import bitsandbytes
import torch

print("loaded")
layer = bitsandbytes.nn.Linear4bit(1024, 1024, compute_dtype=torch.bfloat16).cuda()
layer(torch.ones(8, 1024, device="cuda", dtype=torch.bfloat16))
print("called")
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(4))).cuda()
optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
for _ in range(3):
    model(torch.ones(64, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("ran")
