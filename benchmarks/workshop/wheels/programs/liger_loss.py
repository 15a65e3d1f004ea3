# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "liger-kernel==0.8.5",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""A linear layer fused with cross entropy, after a normalization."""

import torch
from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss, LigerRMSNorm

print("loaded")
norm = LigerRMSNorm(4096).to("cuda", torch.bfloat16)
norm(torch.zeros(16, 4096, device="cuda", dtype=torch.bfloat16))
print("called")
head = torch.nn.Linear(4096, 32_000, bias=False, device="cuda", dtype=torch.bfloat16)
loss = LigerFusedLinearCrossEntropyLoss()
labels = torch.zeros(4096, dtype=torch.long, device="cuda")
for _ in range(3):
    hidden = torch.zeros(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    loss(head.weight, norm(hidden), labels).backward()
print("ran")
