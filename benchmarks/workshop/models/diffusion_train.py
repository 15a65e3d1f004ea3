# SPDX-License-Identifier: Apache-2.0
"""The U-Net of Stable Diffusion 1.5 trained on latents of many aspect ratios, with an EMA.

Interesting for an allocator because of skip connections and shapes. What each level produces on the
way down is kept until the way up returns to it, so blocks die in the reverse order of their
creation across the whole network, and channels grow as resolution falls, from blocks of 50 MB to
some of a few hundred KB. Images are batched by aspect ratio, so sizes differ from step to step and
recur when a ratio does. In between come bursts of the optimizer's temporaries, one for each of 686
parameters.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.workshop.models.program import Mark, ModelProgram
from benchmarks.workshop.models.unet import SD15, TINY, ImageShape, UNet

SEED = 0


@dataclass(frozen=True)
class Config:
    """The network and its training; latents (height, width) are drawn from `ratios`."""

    shape: ImageShape
    batch: int
    ratios: tuple[tuple[int, int], ...]
    steps: int
    text: int = 77  # tokens
    learning_rate: float = 1e-4


def train(config: Config, device: str, mark: Mark) -> None:
    """Learn to predict the noise in random latents."""
    mark("init")
    draw = random.Random(SEED)
    with torch.device(device):
        model = UNet(config.shape)
    parameters: list[Tensor] = list(model.parameters())
    average = [parameter.detach().clone() for parameter in parameters]
    optimizer = torch.optim.AdamW(parameters, config.learning_rate, foreach=True)
    for _ in range(config.steps):
        mark("step")
        mark("forward")
        shape = (config.batch, config.shape.channels, *draw.choice(config.ratios))
        latents, noise = torch.randn(shape, device=device), torch.randn(shape, device=device)
        text = torch.randn(config.batch, config.text, config.shape.context, device=device)
        times = torch.randint(1000, (config.batch,), device=device)
        signal = torch.cos(times / 1000 * torch.pi / 2)[:, None, None, None]
        noisy = signal * latents + (1 - signal.square()).sqrt() * noise
        with torch.autocast(device, torch.bfloat16):
            predicted = model(noisy, times, text)
        loss = (predicted.float() - noise).square().mean()
        del predicted
        mark("backward")
        torch.autograd.backward(loss)
        mark("optimizer")
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(average, parameters, 1e-4)
    mark("teardown")


PROGRAM = ModelProgram(
    run=train,
    full=Config(
        shape=SD15,
        batch=8,
        ratios=((64, 64), (56, 72), (72, 56), (48, 80), (80, 48)),
        steps=4,
    ),
    tiny=Config(shape=TINY, batch=2, ratios=((8, 8), (4, 12)), steps=3, text=5),
    model="Stable Diffusion 1.5 U-Net, batch 8 of latents of 5 aspect ratios near 64x64, bfloat16"
    " autocast, AdamW, an exponential average of the weights",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
