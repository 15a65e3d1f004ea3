# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "transformer-engine==2.20.2",
#   "importlib-metadata==10.2.0",
#   "transformer-engine-cu12==2.20.2",
#   "zipp==4.1.2",
# ]
# [tool.allocbench]
# torch = "2.9.1"
# ///
"""The library alone; its part for PyTorch is compiled on the user's machine."""

import torch
import transformer_engine

print("loaded")
torch.cuda.init()
import transformer_engine.pytorch  # noqa: E402

transformer_engine.pytorch.Linear(64, 64)
print("called")
print("ran")
