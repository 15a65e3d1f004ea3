# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "torchao==0.18.0",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""A layer with weights of 8 bits; training with an optimizer whose states have 8 bits."""

import torch
from torchao.optim import AdamW8bit
from torchao.quantization import Int8WeightOnlyConfig, quantize_

print("loaded")
layer = torch.nn.Sequential(torch.nn.Linear(4096, 4096)).to("cuda", torch.bfloat16)
quantize_(layer, Int8WeightOnlyConfig())
layer(torch.ones(8, 4096, device="cuda", dtype=torch.bfloat16))
print("called")
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(4))).cuda()
optimizer = AdamW8bit(model.parameters())
for _ in range(3):
    model(torch.ones(64, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("ran")
