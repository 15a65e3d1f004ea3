# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "deepspeed==0.19.8",
#   "einops==0.8.2",
#   "hjson==3.1.0",
#   "msgpack==1.2.4",
#   "ninja==1.13.2",
#   "py-cpuinfo==9.0.0",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""ZeRO-2 on one rank."""

import os

import torch

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0"}
os.environ |= {"WORLD_SIZE": "1", "LOCAL_RANK": "0"}
import deepspeed  # it reads the variables

print("loaded")
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4)))
config = {
    "train_micro_batch_size_per_gpu": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
optimizer = torch.optim.AdamW(model.parameters())
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
print("called")
for _ in range(3):
    engine.backward(engine(torch.ones(8, 2048, device="cuda", dtype=torch.bfloat16)).mean())
    engine.step()
print("ran")
