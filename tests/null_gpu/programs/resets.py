"""Resets PyTorch's statistics, runs out of memory, and uses the GPU in a forked process."""

import json
import multiprocessing
import sys

import torch

MIB = 1 << 20


def allocate(*sizes: int) -> None:
    for size in sizes:
        torch.empty(size * MIB, dtype=torch.uint8, device="cuda")


child = multiprocessing.get_context("fork").Process(target=allocate, args=(64,))
child.start()
child.join()

allocate(100)
torch.cuda.reset_peak_memory_stats()
torch.cuda.reset_accumulated_memory_stats()
try:
    allocate(4096)
except torch.OutOfMemoryError:
    torch.cuda.reset_accumulated_memory_stats()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
accelerator = hasattr(getattr(torch, "accelerator", None), "reset_peak_memory_stats")
if accelerator:
    allocate(30)
    torch.accelerator.reset_peak_memory_stats()
kept = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
torch.empty(1, device="cuda").geometric_(0.5).item()
print(json.dumps({"accelerator": accelerator}))
sys.exit(int(sys.argv[1]))
