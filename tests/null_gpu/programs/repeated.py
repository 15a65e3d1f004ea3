# SPDX-License-Identifier: Apache-2.0
"""The same training run in many processes, the last one with 1 % more activations.

Each saves 100 tensors of 2 MiB for its backward pass, the last process 101. What each process
allocates goes to its own recording.
"""

import sys

import torch
from torch import nn


def train(pieces: int) -> None:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Dropout(0.1), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(8 * 32 * 32, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    weight = nn.Parameter(torch.zeros(1, device="cuda"))
    for _ in range(2):
        with torch.autocast("cuda"):
            loss = model(torch.randn(32, 3, 32, 32, device="cuda")).logsumexp(1).mean()
        loss = loss + sum(
            (torch.empty(1 << 19, device="cuda") * weight).sum() for _ in range(pieces)
        )
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


if __name__ == "__main__":
    runs = int(sys.argv[1])
    context = torch.multiprocessing.get_context("fork")
    for run in range(runs):
        process = context.Process(target=train, args=(101 if run == runs - 1 else 100,))
        process.start()
        process.join()
        assert process.exitcode == 0
