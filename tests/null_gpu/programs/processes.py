"""Workers of a DataLoader, pinned memory, forks."""

import json
import os

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
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
