# SPDX-License-Identifier: Apache-2.0
"""Configurations of models of transformers by name, and the class that trains each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
)

_TUNED = ("-it", "-instruct", "-chat", "-chat-hf", "-hf")


def configuration(name: str) -> transformers.PretrainedConfig:
    """The configuration of a model by its name on the Hugging Face hub, or in a folder.

    The owner in the name may be missing or differ, as in a copy of the model. A model tuned to
    follow instructions has the shape of its base (gemma-2-2b-it: gemma-2-2b). A name that is not in
    models.json is looked up in the hub's local cache; nothing is downloaded. A torch_dtype in a
    config.json is told on standard error, because the model is trained in it.
    """
    table = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    own_name = {known.rpartition("/")[2].lower(): known for known in table}
    own = name.rpartition("/")[2].lower()
    names = (own, *(own.removesuffix(suffix) for suffix in _TUNED))
    known = name if name in table else next(filter(None, map(own_name.get, names)), None)
    if known is None:
        try:
            found = transformers.AutoConfig.from_pretrained(name, local_files_only=True)
        except (OSError, ValueError):
            raise SystemExit(
                f"model {name} is not in models.json, and neither a folder nor the local cache of "
                "the Hugging Face hub has its config.json"
            ) from None
        if found.torch_dtype is not None:
            print(f"{name}: trained in its torch_dtype, {found.torch_dtype}", file=sys.stderr)
        return found
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
