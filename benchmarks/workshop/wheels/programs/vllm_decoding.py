# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "vllm==0.33.0",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""Normalization, activation, rotary positions and the paged cache as vLLM decodes.

The kernels alone: they need none of the packages that vLLM's server imports.
"""

import importlib.machinery
import sys
from pathlib import Path

import torch

found = importlib.machinery.PathFinder.find_spec("vllm", sys.path)
for library in sorted(Path(found.origin).parent.glob("_C*.so")):
    torch.ops.load_library(library)
kernels, caches = torch.ops._C, torch.ops._C_cache_ops
print("loaded")
hidden = torch.zeros(64, 4096, device="cuda", dtype=torch.bfloat16)
weight = torch.ones(4096, device="cuda", dtype=torch.bfloat16)
kernels.rms_norm(torch.empty_like(hidden), hidden, weight, 1e-6)
print("called")
cache = torch.zeros(2, 4096, 16, 8, 128, device="cuda", dtype=torch.bfloat16)
scale = torch.ones(1, device="cuda")
for step in range(3):
    gate = torch.zeros(64, 8192, device="cuda", dtype=torch.bfloat16)
    kernels.silu_and_mul(torch.empty_like(hidden), gate)
    keys, values = torch.zeros(2, 64, 8, 128, device="cuda", dtype=torch.bfloat16)
    slots = torch.arange(step * 64, step * 64 + 64, device="cuda")
    caches.reshape_and_cache_flash(keys, values, *cache, slots, "auto", scale, scale)
print("ran")
