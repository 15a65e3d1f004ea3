# SPDX-License-Identifier: Apache-2.0
"""Train the multilayer perceptrons of GPUMemNet's table, one after the other.

    python mlps.py TABLE.csv EVERY

Prints one line of JSON for every EVERY-th row: what was measured, and the most that PyTorch
reserved.
"""

import ast
import csv
import json
import re
import sys
from pathlib import Path

import torch
from torch import nn

STEPS = 3
_NAMES = {"batch_normalization": "BatchNorm1d", "dropout": "Dropout", "linear": "Linear"}


def network(inputs: int, layers: list[tuple[str, int, int]]) -> nn.Sequential:
    """The network of a row: each layer's name and number of outputs."""
    made = []
    for name, outputs, _parameters in layers:
        kind = getattr(nn, _NAMES.get(name, name))
        if kind is nn.Linear:
            made.append(kind(inputs, outputs, device="cuda"))
            inputs = outputs
        elif kind is nn.BatchNorm1d:
            made.append(kind(inputs, device="cuda"))
        elif kind is nn.PReLU:
            made.append(kind(device="cuda"))
        else:
            made.append(kind(dim=1) if kind is nn.Softmax else kind())
    return nn.Sequential(*made)


def train(inputs: int, batch: int, layers: list[tuple[str, int, int]]) -> int:
    """The most bytes that PyTorch reserves in a few steps with Adam."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = network(inputs, layers)
    optimizer = torch.optim.Adam(model.parameters())
    for _step in range(STEPS):
        images = torch.empty(batch, inputs).to("cuda")
        outputs = model(images)
        if outputs.shape[1] > 1:
            labels = torch.zeros(batch, dtype=torch.long).to("cuda")
            loss = nn.functional.cross_entropy(outputs, labels)
        else:
            labels = torch.zeros(batch, 1).to("cuda")
            loss = nn.functional.binary_cross_entropy_with_logits(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cuda.max_memory_reserved()


def main() -> None:
    """Train the networks of a table."""
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:: int(sys.argv[2])]
    for row in rows:
        told = dict(re.findall(r"(input|batch):(\d+)", row["Filename"]))
        layers = ast.literal_eval(row["Activations-Params"])
        reserved = train(int(told["input"]), int(told["batch"]), layers)
        measured = float(row["Max GPU Memory (MiB)"])
        print(json.dumps({"measured_mib": measured, "reserved": reserved}), flush=True)


if __name__ == "__main__":
    main()
