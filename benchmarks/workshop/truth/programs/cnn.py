# SPDX-License-Identifier: Apache-2.0
"""Train a network of torchvision that classifies images on CIFAR-10, resized to 86 x 86.

A network that does not accept images of this size gets the size of torchvision's weights for it.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from networks import loss_of, network, side
from training import Batch, options, train, without_initial_values

SIDE = 86
TEN_CLASSES = ("mnasnet", "mobilenet_v3")
"""Models that were measured with ten classes; the others have torchvision's 1,000."""


def main() -> None:
    """Train the network that the options name."""
    told = options()
    without_initial_values()
    name = network(told.model, torchvision.models.list_models(module=torchvision.models))
    few = name.startswith(TEN_CLASSES)
    make = torchvision.models.get_model_builder(name)
    model = make(weights=None, **({"num_classes": 10} if few else {}))
    published = torchvision.models.get_model_weights(name)
    sides = sorted({weights.transforms().crop_size[0] for weights in published})
    pixels = side(model, SIDE, sides)
    criterion = torch.nn.CrossEntropyLoss()

    def batch() -> Batch:
        return {
            "images": torch.empty(told.batch, 3, pixels, pixels),
            "labels": torch.zeros(told.batch, dtype=torch.long),
        }

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[Any, torch.Tensor]:
        outputs = model(batch["images"])
        return outputs, loss_of(outputs, batch["labels"], criterion)

    # The measured loop starts the thread that samples, and moves the model at once.
    train(model, batch, loss, told, sampled_after_moving=True)


if __name__ == "__main__":
    main()
