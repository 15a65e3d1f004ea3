# SPDX-License-Identifier: Apache-2.0
"""Train a model of transformers: on lines of text, padded to the longest, or on images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from training import Batch, options, train, without_initial_values
from transformers.modeling_utils import no_init_weights
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
)

TOKENS = 128
"""The longest line is cut here; every batch of ten lines or more has one as long."""


def configuration(name: str) -> transformers.PretrainedConfig:
    """The configuration of a model by its name on the Hugging Face hub, or in a folder.

    The owner in the name may be missing or differ, as in a copy of the model. A name that is not in
    models.json is looked up in the hub's local cache; nothing is downloaded.
    """
    table = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    own_name = {known.rpartition("/")[2].lower(): known for known in table}
    known = name if name in table else own_name.get(name.rpartition("/")[2].lower())
    if known is None:
        try:
            return transformers.AutoConfig.from_pretrained(name, local_files_only=True)
        except (OSError, ValueError):
            raise SystemExit(
                f"model {name} is not in models.json, and neither a folder nor the local cache of "
                "the Hugging Face hub has its config.json"
            ) from None
    values = dict(table[known])
    return transformers.AutoConfig.for_model(values.pop("model_type"), **values)


def class_for(config: transformers.PretrainedConfig) -> Any:
    """The class of transformers that trains a model: for text if it can, else for images."""
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING:
        return transformers.AutoModelForMaskedLM
    if type(config) in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
        return transformers.AutoModelForImageClassification
    return transformers.AutoModelForCausalLM


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
        return {"input_ids": ids, "attention_mask": ids.clone(), "labels": ids.clone()}

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
