# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "sageattention==1.0.6",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""Quantized attention."""

import torch
from sageattention import sageattn

print("loaded")
q = torch.zeros(2, 16, 2048, 64, device="cuda", dtype=torch.float16)
sageattn(q, q, q)
print("called")
for _ in range(3):
    q = sageattn(q, q, q, is_causal=True)
print("ran")
