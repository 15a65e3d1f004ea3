# SPDX-License-Identifier: Apache-2.0
"""Configurations of models of transformers by name, and the class that trains each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers
from networks import language_model
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
)


def configuration(name: str) -> transformers.PretrainedConfig:
    """The configuration of a model by its name on the Hugging Face hub, or in a folder.

    The owner in the name may be missing or differ, as in a copy of the model. A model tuned to
    follow instructions has the shape of its base (gemma-2-2b-it: gemma-2-2b). A name that is not in
    models.json is looked up in the hub's local cache; nothing is downloaded.
    """
    table = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    known = language_model(name, table)
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
