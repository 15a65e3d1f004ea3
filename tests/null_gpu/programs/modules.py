# SPDX-License-Identifier: Apache-2.0
"""Two kinds of models, trained; the argument says how: plain, compiled, ..., parallel."""

import sys
from contextlib import nullcontext

import torch
from torch import nn
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

HOW = sys.argv[1]
WIDTH, ROWS = 512, 256


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if HOW == "checkpointed" else layer(x)
        return x


def train() -> None:
    model: nn.Module = Model().cuda()
    parameters = list(model.parameters())
    if HOW == "compiled":
        model = torch.compile(model, backend="aot_eager")
    if HOW == "parallel":
        torch.distributed.init_process_group("nccl")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parameters)
    for _ in range(3):
        model(torch.randn(ROWS, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if HOW == "parallel":
        torch.distributed.destroy_process_group()


with profile(with_stack=True) if HOW == "profiled" else nullcontext():
    train()
