# SPDX-License-Identifier: Apache-2.0
"""A ViT-L/16 behind a queue: the size of each batch is the number of waiting images.

Interesting for an allocator because a pass is short, regular and leaves nothing behind: all block
sizes are proportional to the batch, which differs each time, from 1 to 64. Blocks cached for a
large batch are split for the small ones after it and needed whole again later; sizes recur, but in
no order.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.workshop.models.llama import bfloat16_on
from benchmarks.workshop.models.program import Mark, ModelProgram
from benchmarks.workshop.models.transformer import Block, whole

SEED = 0


@dataclass(frozen=True)
class Config:
    """The network, and the sizes of its batches."""

    layers: int
    width: int
    heads: int
    patch: int
    side: int
    classes: int
    batches: tuple[int, ...]


def draw_batches(count: int, largest: int) -> tuple[int, ...]:
    """Draw batch sizes: the length of the queue, up to the largest batch."""
    draw = random.Random(SEED)
    return tuple(min(largest, 1 + int(draw.expovariate(3 / largest))) for _ in range(count))


class ViT(nn.Module):
    """Patches and a class token, blocks, and a head on the class token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        patches = (config.side // config.patch) ** 2
        self.patches = nn.Conv2d(3, config.width, config.patch, stride=config.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1, patches + 1, config.width))
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, side, side) -> logits (batch, classes)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), dim=1) + self.positions
        for block in self.blocks:
            x = block(x, whole)
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


def serve(config: Config, device: str, mark: Mark) -> None:
    """Classify random images, one step for each of `config.batches`."""
    mark("init")
    with bfloat16_on(device):
        model = ViT(config)
    for count in config.batches:
        mark("step")
        mark("forward")
        pixels = torch.randint(
            256, (count, 3, config.side, config.side), dtype=torch.uint8, device=device
        )
        images = pixels.to(torch.bfloat16).div_(127.5).sub_(1)
        model(images).float().softmax(-1).topk(5).indices.cpu()
        del pixels, images
    mark("teardown")


PROGRAM = ModelProgram(
    run=torch.no_grad()(serve),
    full=Config(
        layers=24,
        width=1024,
        heads=16,
        patch=16,
        side=224,
        classes=1000,
        batches=draw_batches(count=24, largest=64),
    ),
    tiny=Config(
        layers=4,
        width=32,
        heads=2,
        patch=4,
        side=16,
        classes=10,
        batches=draw_batches(count=6, largest=8),
    ),
    model="ViT-L/16, bfloat16, 24 batches of 1 to 64 images of 224x224",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
