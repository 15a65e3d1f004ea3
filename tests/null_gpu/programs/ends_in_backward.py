"""Ends right after a backward pass, whose thread may still wait for Python's lock."""

import sys

import torch

layer = torch.nn.Linear(8, 8, device="cuda")
batch = torch.randn(4, 8, device="cuda")
layer(batch).sum().backward()
print("{}", flush=True)
sys.setswitchinterval(5)  # seconds until a thread that waits can ask for the lock
layer(batch).sum().backward()
