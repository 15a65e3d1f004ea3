# SPDX-License-Identifier: Apache-2.0
"""Train a language model of transformers on lines of text, padded to the longest of the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from training import Batch, options, train, without_initial_values
from transformers.modeling_utils import no_init_weights

TOKENS = 128
"""The longest line is cut here; every batch of ten lines or more has one as long."""
ENCODERS = ("albert", "bert", "roberta", "distilbert", "deberta", "deberta-v2")


def configuration(name: str) -> transformers.PretrainedConfig:
    """The configuration of a model by its name on the Hugging Face hub.

    The owner in the name may be missing or differ, as in a copy of the model.
    """
    table = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    own_name = {known.rpartition("/")[2].lower(): known for known in table}
    known = name if name in table else own_name.get(name.rpartition("/")[2].lower())
    if known is None:
        raise SystemExit(f"model {name} has no configuration in models.json")
    values = dict(table[known])
    return transformers.AutoConfig.for_model(values.pop("model_type"), **values)


def main() -> None:
    """Train the language model that the options name."""
    told = options()
    without_initial_values()
    config = configuration(told.model)
    kind = transformers.AutoModelForCausalLM
    if config.is_encoder_decoder:
        kind = transformers.AutoModelForSeq2SeqLM
    elif config.model_type in ENCODERS:
        kind = transformers.AutoModelForMaskedLM
    with no_init_weights():
        model = kind.from_config(config)
    model.tie_weights()  # skipped where initial values are

    def batch() -> Batch:
        ids = torch.ones(told.batch, TOKENS, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": ids.clone(), "labels": ids.clone()}

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[Any, torch.Tensor]:
        outputs = model(**batch)
        return outputs, outputs.loss

    train(model, batch, loss, told)


if __name__ == "__main__":
    main()
