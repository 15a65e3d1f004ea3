# SPDX-License-Identifier: Apache-2.0
"""What the training programs share: options, optimizers, the loop, and what they print.

These files run in the environment of `benchmarks.workshop.truth.environment`, without allocbench.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch

STEPS = 3
"""Optimizer states exist after the first step, and the second one reaches the peak."""

Batch = dict[str, torch.Tensor]


def options() -> argparse.Namespace:
    """The options of a training program, which are columns of the table of measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--optimizer", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--zero-grad-mode", type=int, default=0, choices=(0, 1, 2))
    return parser.parse_args()


def without_initial_values() -> None:
    """Make modules skip their initial values: memory does not depend on them, time does."""
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, lambda tensor, *_args, **_options: tensor)


def train(
    model: torch.nn.Module,
    make_batch: Callable[[], Batch],
    loss: Callable[[torch.nn.Module, Batch], tuple[Any, torch.Tensor]],
    told: argparse.Namespace,
    sampled_after_moving: bool,
) -> None:
    """Train in single precision on the first GPU, and print the peaks, or that memory ran out.

    make_batch: makes a batch in host memory. loss: the outputs, which stay alive until the next
    step makes new ones, and the loss. zero_grad_mode of `told`: gradients are freed before the
    batch is moved to the GPU (0), before backward (1) or after the step (2). sampled_after_moving:
    the first sample of the measurement, which it subtracts, is taken when the GPU has the model.
    """
    device = torch.device("cuda")
    torch.cuda.init()
    ran_out = False
    first_sample = 0
    try:
        model.to(device)
        if sampled_after_moving:
            first_sample = torch.cuda.memory_reserved()
        optimizer = make_optimizer(told.optimizer, model)
        for _step in range(STEPS):
            batch = make_batch()  # the last one leaves the GPU before this one moves there
            if told.zero_grad_mode == 0:
                optimizer.zero_grad()
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            _outputs, value = loss(model, batch)
            if told.zero_grad_mode == 1:
                optimizer.zero_grad()
            value.backward()
            optimizer.step()
            if told.zero_grad_mode == 2:
                optimizer.zero_grad()
    except torch.OutOfMemoryError:
        ran_out = True
    free, total = torch.cuda.mem_get_info()
    print(
        json.dumps(
            {
                "reserved": torch.cuda.max_memory_reserved(),
                "first_sample": first_sample,
                "allocated": torch.cuda.max_memory_allocated(),
                "used": total - free,
                "oom": ran_out,
                "torch": torch.__version__,
                "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            }
        )
    )


def make_optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a name, with its defaults and a learning rate."""
    if name.lower() == "adafactor":  # as measured; PyTorch's own has other options
        from transformers import Adafactor

        return Adafactor(model.parameters(), lr=1e-3, relative_step=False)
    known = {
        found.lower(): kind
        for found, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    }
    kind = known.get(name.lower())
    if kind is None:
        raise SystemExit(f"optimizer {name} is not one of PyTorch's")
    if kind is torch.optim.LBFGS:
        raise SystemExit("optimizer LBFGS takes steps that depend on values; a null GPU has none")
    return kind(model.parameters(), lr=1e-3)
