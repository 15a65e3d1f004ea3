# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "tensordict==0.15.3",
#   "cloudpickle==3.1.3",
#   "orjson==3.13.0",
#   "pyvers==0.2.3",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""Dictionaries of tensors that are moved, stacked and changed."""

import torch
from tensordict import TensorDict

print("loaded")
data = TensorDict({"a": torch.zeros(1024, 1024)}, batch_size=[1024]).to("cuda")
print("called")
for _ in range(3):
    both = torch.stack([data, data.clone()])
    both["a"] = both["a"] * 2
print("ran")
