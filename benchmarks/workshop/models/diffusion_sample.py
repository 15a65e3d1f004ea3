# SPDX-License-Identifier: Apache-2.0
"""Stable Diffusion 1.5 sampling with classifier-free guidance: U-Net steps, then a decoder.

Interesting for an allocator because two programs alternate in the same memory. The sampler requests
the same few hundred sizes in each step, with twice the batch because every image is computed with
and without its text. The decoder runs once per request, with blocks of half a gigabyte that live
for a few milliseconds and make the peak. Requests differ in the number and size of images, so
memory freed by the decoder of one request is split up by the sampler of the next.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workshop.models.llama import bfloat16_on
from benchmarks.workshop.models.program import Mark, ModelProgram
from benchmarks.workshop.models.unet import SD15, TINY, ImageShape, Residual, UNet


@dataclass(frozen=True)
class ImageRequest:
    """Requested images; height and width are those of the latents, 1/8 of the image's."""

    images: int
    height: int
    width: int


@dataclass(frozen=True)
class Config:
    """The networks, and the requests in order."""

    shape: ImageShape
    decoder: tuple[int, ...]  # channels of the decoder's levels, coarsest first
    requests: tuple[ImageRequest, ...]
    steps: int  # of the sampler, for each request
    text: int = 77  # tokens
    guidance: float = 7.5


class PixelAttention(nn.Module):
    """Attention with a single head as wide as the image's channels, plus a residual connection."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, width, height, width) -> the same shape."""
        x = self.norm(image).flatten(2).transpose(1, 2)
        query, key, value = self.qkv(x)[:, None].chunk(3, dim=-1)
        attended = functional.scaled_dot_product_attention(query, key, value)[:, 0]
        output: Tensor = self.output(attended).transpose(1, 2).reshape(image.shape)
        return image + output


class Decoder(nn.Module):
    """Latents -> images; each level after the first doubles the resolution."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        groups, x = config.shape.groups, config.decoder[0]
        self.enter = nn.Conv2d(config.shape.channels, x, 3, padding=1)
        self.before, self.after = Residual(x, x, groups), Residual(x, x, groups)
        self.attention = PixelAttention(x, groups)
        self.levels, self.grow = nn.ModuleList(), nn.ModuleList()
        for width in config.decoder:
            inputs = (x, width, width)
            self.levels.append(nn.Sequential(*(Residual(i, width, groups) for i in inputs)))
            if len(self.levels) < len(config.decoder):
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
            x = width
        self.norm, self.leave = nn.GroupNorm(groups, x), nn.Conv2d(x, 3, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        """(batch, channels, height, width) -> (batch, 3, ...), eight times the height and width."""
        x = self.after(self.attention(self.before(self.enter(latents))))
        for number, level in enumerate(self.levels):
            x = level(x)
            if number < len(self.grow):
                x = self.grow[number](functional.interpolate(x, scale_factor=2.0))
        image: Tensor = self.leave(functional.silu(self.norm(x)))
        return image


def sample(config: Config, device: str, mark: Mark) -> None:
    """Serve `config.requests` on random texts, one after another."""
    mark("init")
    with bfloat16_on(device):
        model, decoder = UNet(config.shape), Decoder(config)
    alphas = [0.99 - 0.98 * step / config.steps for step in range(config.steps + 1)]
    alphas.reverse()
    for request in config.requests:
        size = (request.images, config.shape.channels, request.height, request.width)
        latents = torch.randn(size, dtype=torch.bfloat16, device=device)
        text_size = (2 * request.images, config.text, config.shape.context)
        text = torch.randn(text_size, dtype=torch.bfloat16, device=device)
        for alpha, next_alpha in pairwise(alphas):
            mark("step")
            mark("sample")
            times = torch.full((2 * request.images,), 1000 * (1 - alpha), device=device)
            guided, free = model(torch.cat((latents, latents)), times, text).chunk(2)
            noise = free + config.guidance * (guided - free)
            clean = (latents - (1 - alpha) ** 0.5 * noise) / alpha**0.5
            latents = next_alpha**0.5 * clean + (1 - next_alpha) ** 0.5 * noise
        mark("decode")
        image = decoder(latents / 0.18215)
        ((image / 2 + 0.5).clamp_(0, 1) * 255).to(torch.uint8).cpu()
        del image, latents, text
    mark("teardown")


PROGRAM = ModelProgram(
    run=torch.no_grad()(sample),
    full=Config(
        shape=SD15,
        decoder=(512, 512, 256, 128),
        requests=(ImageRequest(4, 64, 64), ImageRequest(1, 96, 64), ImageRequest(8, 64, 64)),
        steps=6,
    ),
    tiny=Config(
        shape=TINY,
        decoder=(16, 8),
        requests=(ImageRequest(2, 8, 8), ImageRequest(1, 12, 8)),
        steps=2,
        text=5,
    ),
    model="Stable Diffusion 1.5, bfloat16, classifier-free guidance, requests of 1 to 8 images of"
    " 512x512 and 768x512, 6 steps each",
    seed=0,
)

if __name__ == "__main__":
    PROGRAM.main()
