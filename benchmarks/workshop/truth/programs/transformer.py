# SPDX-License-Identifier: Apache-2.0
"""Train a model of transformers: on lines of text, padded to the longest, or on images."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from configurations import class_for, configuration
from training import Batch, options, train, without_initial_values
from transformers.modeling_utils import no_init_weights

TOKENS = 128
"""The longest line is cut here; every batch of ten lines or more has one as long."""


def main() -> None:
    """Train the model that the options name."""
    told = options()
    without_initial_values()
    config = configuration(told.model)
    kind = class_for(config)
    with no_init_weights():
        model = kind.from_config(config)
    model.tie_weights()  # skipped where initial values are

    def text() -> Batch:
        ids = torch.ones(told.batch, TOKENS, dtype=torch.long)
        mask = ids.clone()
        mask[1:, TOKENS // 2 :] = 0  # the other lines are shorter, so models cannot drop the mask
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}

    def images() -> Batch:
        shape = (told.batch, config.num_channels, config.image_size, config.image_size)
        return {"pixel_values": torch.empty(shape), "labels": torch.zeros(told.batch).long()}

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[Any, torch.Tensor]:
        outputs = model(**batch)
        return outputs, outputs.loss

    of_images = kind is transformers.AutoModelForImageClassification
    # The measured loop waits for two seconds before it moves the model.
    make_batch = images if of_images else text
    train(model, make_batch, loss, told, sampled_after_moving=False)


if __name__ == "__main__":
    main()
