# SPDX-License-Identifier: Apache-2.0
"""Train a convolutional network of torchvision on images of CIFAR-10, resized to 86 x 86."""

from __future__ import annotations

import torch
import torchvision
from training import Batch, options, train, without_initial_values

SIDE = 86
TEN_CLASSES = ("mnasnet", "mobilenet_v3")
"""Models that were measured with ten classes; the others have torchvision's 1,000."""


def main() -> None:
    """Train the network that the options name."""
    told = options()
    without_initial_values()
    few = told.model.startswith(TEN_CLASSES)
    known = {name.replace("_", ""): name for name in torchvision.models.list_models()}
    name = known.get(told.model.replace("_", ""))
    if name is None:
        raise SystemExit(f"model {told.model} is not one of torchvision's")
    make = torchvision.models.get_model_builder(name)
    model = make(weights=None, **({"num_classes": 10} if few else {}))
    criterion = torch.nn.CrossEntropyLoss()

    def batch() -> Batch:
        return {
            "images": torch.empty(told.batch, 3, SIDE, SIDE),
            "labels": torch.zeros(told.batch, dtype=torch.long),
        }

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = model(batch["images"])
        return outputs, criterion(outputs, batch["labels"])

    train(model, batch, loss, told)


if __name__ == "__main__":
    main()
