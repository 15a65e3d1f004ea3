# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "xformers==0.0.33.post2",
# ]
# [tool.allocbench]
# torch = "2.9.1"
# ///
"""Memory-efficient attention with a causal mask, forward and backward."""

import torch
import xformers.ops

print("loaded")
shape = (2, 2048, 16, 64)
q, k, v = (torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
xformers.ops.memory_efficient_attention(q, k, v)
print("called")
q.requires_grad_()
for _ in range(3):
    mask = xformers.ops.LowerTriangularMask()
    xformers.ops.memory_efficient_attention(q, k, v, attn_bias=mask).sum().backward()
print("ran")
