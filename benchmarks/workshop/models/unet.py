# SPDX-License-Identifier: Apache-2.0
"""The U-Net of Stable Diffusion 1.5, shared by its training and its sampling."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class ImageShape:
    """The sizes of a U-Net; `multipliers` of the width and `attends` are by level, finest first."""

    width: int
    multipliers: tuple[int, ...]
    attends: tuple[bool, ...]
    blocks: int  # per level on the way down; one more on the way up
    heads: int
    context: int  # width of the text embedding
    groups: int = 32
    channels: int = 4  # of the image or its latent


SD15 = ImageShape(320, (1, 2, 4, 4), (True, True, True, False), blocks=2, heads=8, context=768)
TINY = ImageShape(8, (1, 2), (True, False), blocks=1, heads=2, context=12, groups=4)


class Residual(nn.Module):
    """Two normalised convolutions with a residual connection; a time embedding can be added."""

    def __init__(self, inputs: int, outputs: int, groups: int, time: int = 0) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.GroupNorm(groups, inputs), nn.GroupNorm(groups, outputs)
        self.convolution_1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.convolution_2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs) if time else None
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        """(batch, inputs, height, width) -> (batch, outputs, height, width)."""
        h = self.convolution_1(functional.silu(self.norm_1(x)))
        if self.time is not None and time is not None:
            h = h + self.time(functional.silu(time))[:, :, None, None]
        h = self.convolution_2(functional.silu(self.norm_2(h)))
        output: Tensor = self.shortcut(x) + h
        return output


class ImageAttention(nn.Module):
    """Self-attention over the image, or attention to a context of another width."""

    def __init__(self, width: int, heads: int, context: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(context or width, width, bias=False)
        self.value = nn.Linear(context or width, width, bias=False)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """(batch, length, width) and a context -> (batch, length, width)."""
        query, key, value = (
            projected.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projected in (self.query(x), self.key(context), self.value(context))
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        output: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return output


class Transformer(nn.Module):
    """Attention to the image, then to the text, then a gated perceptron, for each pixel."""

    def __init__(self, width: int, shape: ImageShape) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(shape.groups, width, eps=1e-6)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.norm_3 = nn.LayerNorm(width)
        self.to_image = ImageAttention(width, shape.heads)
        self.to_text = ImageAttention(width, shape.heads, shape.context)
        self.expand, self.contract = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        """Image (batch, width, height, width) and text (batch, length, context) -> image."""
        x = self.enter(self.norm(image)).flatten(2).transpose(1, 2)
        normalised = self.norm_1(x)
        x = x + self.to_image(normalised, normalised)
        x = x + self.to_text(self.norm_2(x), text)
        hidden, gate = self.expand(self.norm_3(x)).chunk(2, dim=-1)
        x = x + self.contract(hidden * functional.gelu(gate))
        output: Tensor = image + self.leave(x.transpose(1, 2).unflatten(2, image.shape[2:]))
        return output


class Level(nn.Module):
    """Residual blocks of one resolution, optionally with attention after each."""

    def __init__(self, inputs: list[int], outputs: int, attends: bool, shape: ImageShape) -> None:
        super().__init__()
        time = 4 * shape.width
        self.residuals = nn.ModuleList(
            Residual(width, outputs, shape.groups, time) for width in inputs
        )
        count = len(inputs) if attends else 0
        self.transformers = nn.ModuleList(Transformer(outputs, shape) for _ in range(count))

    def forward(self, index: int, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """One residual block of this level and its attention."""
        x = self.residuals[index](x, time)
        if self.transformers:
            x = self.transformers[index](x, text)
        return x


class UNet(nn.Module):
    """Down from level to level, through the middle, and up again with skip connections."""

    def __init__(self, shape: ImageShape) -> None:
        super().__init__()
        self.shape = shape
        time = 4 * shape.width
        self.time_1, self.time_2 = nn.Linear(shape.width, time), nn.Linear(time, time)
        self.enter = nn.Conv2d(shape.channels, shape.width, 3, padding=1)
        widths = [shape.width * multiplier for multiplier in shape.multipliers]
        kept, x = [shape.width], shape.width
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        for width, attends in zip(widths, shape.attends, strict=True):
            self.down.append(Level([x, *[width] * (shape.blocks - 1)], width, attends, shape))
            kept += [width] * shape.blocks
            if len(self.down) < len(widths):
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                kept.append(width)
            x = width
        self.middle = Level([x], x, True, shape)
        self.after = Residual(x, x, shape.groups, time)
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for width, attends in zip(reversed(widths), reversed(shape.attends), strict=True):
            inputs = []
            for _ in range(shape.blocks + 1):
                inputs.append(x + kept.pop())
                x = width
            self.up.append(Level(inputs, width, attends, shape))
            if len(self.up) < len(widths):
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = nn.GroupNorm(shape.groups, x)
        self.leave = nn.Conv2d(x, shape.channels, 3, padding=1)

    def forward(self, image: Tensor, times: Tensor, text: Tensor) -> Tensor:
        """Noisy images (batch, channels, height, width), times (batch,), text -> their noise."""
        time = self.time_2(functional.silu(self.time_1(self._embed(times, image.dtype))))
        x = self.enter(image)
        kept = [x]
        for number, level in enumerate(self.down):
            for index in range(self.shape.blocks):
                x = level(index, x, time, text)
                kept.append(x)
            if number < len(self.shrink):
                x = self.shrink[number](x)
                kept.append(x)
        x = self.after(self.middle(0, x, time, text), time)
        for number, level in enumerate(self.up):
            for index in range(self.shape.blocks + 1):
                x = level(index, torch.cat((x, kept.pop()), dim=1), time, text)
            if number < len(self.grow):
                x = self.grow[number](functional.interpolate(x, scale_factor=2.0))
        output: Tensor = self.leave(functional.silu(self.norm(x)))
        return output

    def _embed(self, times: Tensor, dtype: torch.dtype) -> Tensor:
        """Sines and cosines of the times at frequencies from 1 down to 1/10000."""
        half = self.shape.width // 2
        steps = torch.arange(half, device=times.device) / half
        angles = times[:, None] * torch.exp(-math.log(10000) * steps)
        return torch.cat((angles.cos(), angles.sin()), dim=1).to(dtype)
