# SPDX-License-Identifier: Apache-2.0
"""Train a model of transformers, or generate with it; its weights are random."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measuring
import torch
import transformers
from configurations import class_for, configuration
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING

AUDIO_FRAMES = 3000
"""Of 30 seconds, as Whisper demands."""
VARIED = (4, 1, 2, 3)
"""By which the tokens of a step are divided."""


def read_configuration(name: str) -> Any:
    """The configuration of a model of `models.json`, or of those in benchmarks/workshop/truth."""
    known = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))
    if name not in known:
        return configuration(name)
    values = dict(known[name])
    return transformers.AutoConfig.for_model(values.pop("model_type"), **values)


def make(told: argparse.Namespace, config: Any) -> Any:
    """The model on the GPU."""
    kind = class_for(config)
    if config.model_type == "whisper":
        kind = transformers.AutoModelForSpeechSeq2Seq
    dtype = getattr(torch, told.dtype)
    options = {"dtype": dtype, "attn_implementation": told.attention}
    if told.on_gpu:
        with torch.device("cuda"):
            model = kind.from_config(config, **options)
    else:
        model = kind.from_config(config, **options)
    if told.checkpointing:
        model.gradient_checkpointing_enable()
        model.config.use_cache = False
    if told.lora:
        import peft

        adapters = peft.LoraConfig(r=told.lora, target_modules="all-linear")
        if told.checkpointing:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, adapters)
    return model.to("cuda")


def make_batch(told: argparse.Namespace, config: Any, step: int = 0) -> dict[str, torch.Tensor]:
    """A batch in host memory: texts of equal length, images, or sounds with texts.

    With --varied, the texts of a step are shorter than those of others.
    """
    if type(config) in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
        shape = (told.batch, config.num_channels, config.image_size, config.image_size)
        return {"pixel_values": torch.rand(shape), "labels": torch.randint(0, 2, (told.batch,))}
    tokens = told.tokens // VARIED[step % len(VARIED)] if told.varied else told.tokens
    ids = torch.randint(5, config.vocab_size, (told.batch, tokens))
    if config.model_type == "whisper":
        return {
            "input_features": torch.rand(told.batch, config.num_mel_bins, AUDIO_FRAMES),
            "labels": ids,
        }
    mask = {} if told.no_mask else {"attention_mask": torch.ones_like(ids)}
    return {"input_ids": ids, **mask, "labels": ids.clone()}


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    config = read_configuration(told.model)
    model = make(told, config)
    stages.reach("model")

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        for step in itertools.count():
            batch = make_batch(told, config, step)
            yield {name: tensor.to("cuda") for name, tensor in batch.items()}

    def loss(called: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        value: torch.Tensor = called(**batch).loss
        return value

    if told.new_tokens:
        return generate(told, stages, model, next(batches()))
    model.train()
    return measuring.train(told, stages, model, batches(), loss)


def generate(
    told: argparse.Namespace, stages: measuring.Stages, model: Any, batch: dict[str, torch.Tensor]
) -> None:
    """Generate exactly `--new-tokens` for each line, `--steps` times."""
    model.eval()
    del batch["labels"]
    for step in range(told.steps):
        with torch.no_grad():
            model.generate(
                **batch,
                max_new_tokens=told.new_tokens,
                min_new_tokens=told.new_tokens,
                do_sample=told.sample,
                num_beams=told.beams,
                pad_token_id=0,
            )
        stages.reach(f"step {step + 1}")


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--varied", action="store_true", help="texts of other lengths in each step")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "eager"))
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--lora", type=int, default=0, help="rank of the adapters")
    parser.add_argument("--no-mask", action="store_true", help="give the model no attention mask")
    parser.add_argument("--on-gpu", action="store_true", help="create the weights on the GPU")
    parser.add_argument("--new-tokens", type=int, default=0, help="generate this many")
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--sample", action="store_true")
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
