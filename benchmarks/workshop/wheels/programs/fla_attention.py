# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "flash-linear-attention==0.6.0",
#   "einops==0.8.2",
#   "fla-core==0.6.0",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""Gated linear attention; its kernels are tuned: all variants are compiled, once per machine."""

import torch
from fla.layers import GatedLinearAttention
from fla.modules import RMSNorm

print("loaded")
RMSNorm(1024).to("cuda", torch.bfloat16)(
    torch.zeros(2, 512, 1024, device="cuda", dtype=torch.bfloat16)
)
print("called")
layer = GatedLinearAttention(hidden_size=1024, num_heads=4).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(3):
    hidden = torch.zeros(4, 2048, 1024, device="cuda", dtype=torch.bfloat16)
    layer(hidden)[0].float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("ran")
