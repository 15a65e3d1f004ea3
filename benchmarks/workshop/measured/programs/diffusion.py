# SPDX-License-Identifier: Apache-2.0
"""Train a model of diffusers with random weights: a UNet, with or without a text, or a VAE."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import diffusers
import measuring
import torch
import torch.nn.functional as F  # noqa: N812

TEXT = (77, 768)
"""Tokens and width of the text that a conditioned UNet gets."""
WIDTHS = (128, 256, 512)
_STEPS_OF_NOISE = 1000


def make(told: argparse.Namespace) -> Any:
    """The model, in host memory."""
    if told.autoencoder:
        blocks = {"down_block_types": ["DownEncoderBlock2D"] * 3}
        blocks |= {"up_block_types": ["UpDecoderBlock2D"] * 3}
        return diffusers.AutoencoderKL(block_out_channels=WIDTHS, layers_per_block=2, **blocks)
    if told.conditioned:
        return diffusers.UNet2DConditionModel(
            sample_size=told.side, cross_attention_dim=TEXT[1], block_out_channels=(*WIDTHS, 512)
        )
    return diffusers.UNet2DModel(
        sample_size=told.side,
        block_out_channels=WIDTHS,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    )


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    model = make(told).to("cuda")
    stages.reach("model")
    channels = 4 if told.conditioned else 3
    shape = (told.batch, channels, told.side, told.side)

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        for _ in itertools.count():
            batch = {"images": torch.rand(shape), "noise": torch.randn(shape)}
            batch["times"] = torch.randint(0, _STEPS_OF_NOISE, (told.batch,))
            if told.conditioned:
                batch["text"] = torch.randn(told.batch, *TEXT)
            yield {name: tensor.to("cuda") for name, tensor in batch.items()}

    def loss(called: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if told.autoencoder:
            return F.mse_loss(called(batch["images"]).sample, batch["images"])
        noisy = batch["images"] + batch["noise"]
        text = [batch["text"]] if told.conditioned else []
        return F.mse_loss(called(noisy, batch["times"], *text).sample, batch["noise"])

    model.train()
    measuring.train(told, stages, model, batches(), loss)


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--side", type=int, default=64, help="pixels")
    parser.add_argument("--conditioned", action="store_true", help="on a text")
    parser.add_argument("--autoencoder", action="store_true", help="train a VAE")
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
