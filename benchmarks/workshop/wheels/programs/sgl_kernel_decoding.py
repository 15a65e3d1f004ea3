# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "sgl-kernel==0.3.21",
# ]
# [tool.allocbench]
# torch = "2.9.1"
# ///
"""Normalization, activation and sampling as SGLang decodes."""

import sgl_kernel
import torch

print("loaded")
hidden = torch.zeros(64, 4096, device="cuda", dtype=torch.bfloat16)
weight = torch.ones(4096, device="cuda", dtype=torch.bfloat16)
sgl_kernel.rmsnorm(hidden, weight, 1e-6)
print("called")
for _ in range(3):
    gate = torch.zeros(64, 8192, device="cuda", dtype=torch.bfloat16)
    sgl_kernel.fused_add_rmsnorm(sgl_kernel.silu_and_mul(gate), hidden, weight, 1e-6)
    probabilities = torch.full((64, 32_000), 1 / 32_000, device="cuda")
    sgl_kernel.top_k_top_p_sampling_from_probs(probabilities, 50, 0.9)
print("ran")
