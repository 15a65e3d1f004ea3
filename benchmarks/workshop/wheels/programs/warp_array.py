# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "warp-lang==1.19.0",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""An array."""

import torch
import warp

print("loaded")
torch.cuda.init()
warp.zeros(1024, dtype=float, device="cuda:0")
print("called")
print("ran")
