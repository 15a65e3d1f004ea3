# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "autoawq-kernels==0.0.9",
# ]
# [tool.allocbench]
# torch = "2.5.1"
# ///
"""A layer with weights of 4 bits."""

import torch  # the extension needs its libraries

# isort: split

import awq_ext

print("loaded")
hidden = torch.zeros(16, 1, 4096, device="cuda", dtype=torch.float16)
weight = torch.ones(4096, device="cuda", dtype=torch.float16)
awq_ext.layernorm_forward_cuda(hidden, weight, torch.empty_like(hidden), 1e-6)
print("called")
weights = torch.zeros(4096, 512, device="cuda", dtype=torch.int32)
zeros = torch.zeros(32, 512, device="cuda", dtype=torch.int32)
scales = torch.zeros(32, 4096, device="cuda", dtype=torch.float16)
for _ in range(3):
    awq_ext.dequantize_weights_cuda(weights, scales, zeros, 0, 0, 0, False)
    awq_ext.gemm_forward_cuda(hidden[:, 0], weights, scales, zeros, 8)
print("ran")
