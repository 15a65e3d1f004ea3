"""Workers of a DataLoader, pinned memory, forks, other processes on the same card."""

import json
import os
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    seen = {}
    data = TensorDataset(torch.arange(64.0).reshape(16, 4))
    sums = []
    for (batch,) in DataLoader(data, 4, pin_memory=True, num_workers=2):
        assert batch.is_pinned()
        sums.append(batch.to("cuda", non_blocking=True).cpu().sum().item())
    seen["sums"] = sums
    child = os.fork()
    if child == 0:
        os._exit(3 if torch.cuda._is_in_bad_fork() else 4)
    seen["child of a fork"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    seen["with_parent"] = subprocess.run([sys.executable, __file__, "child"]).returncode
    torch.cuda.empty_cache()
    seen["alone"] = subprocess.run([sys.executable, __file__, "child"]).returncode
    print(json.dumps(seen))


def child():
    try:
        torch.empty(60 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        sys.exit(5)


if __name__ == "__main__":
    child() if "child" in sys.argv else main()
