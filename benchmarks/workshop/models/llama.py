# SPDX-License-Identifier: Apache-2.0
"""The parts of Llama-3 shared by its fine-tuning and its decoding.

Normalisation and rotary embedding are written as individual operators rather than with a fused
kernel that only some devices have, so that every GPU makes the same allocations.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(query, keys, values) of new tokens -> the result of attention.

Queries and the result are (batch, heads, length, head width); keys and values have `kv_heads`.
"""


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a Llama."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    tied: bool = False  # whether the head shares the embedding

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.width // self.heads


LLAMA3_8B = DecoderShape(
    layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, vocabulary=128256
)
TINY = DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=64, vocabulary=101)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation in float32 with a learned scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> the same shape."""
        exact = x.float()
        scaled = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-5)
        return scaled.type_as(x) * self.weight


class Rotation:
    """Rotary position embedding: rotates pairs of a head's channels by an angle per position."""

    def __init__(self, head_width: int, positions: Tensor, dtype: torch.dtype) -> None:
        """Angles for token positions of shape (length,) or, one per sequence, (batch, 1)."""
        channels = torch.arange(0, head_width, 2, device=positions.device)
        frequencies = 500000.0 ** (-channels / head_width)
        angles = positions[..., None] * frequencies
        if positions.dim() > 1:
            angles = angles[:, None]
        angles = torch.cat((angles, angles), dim=-1)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, heads, length, head width) -> the same shape."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), dim=-1) * self.sin


class Attention(nn.Module):
    """Grouped-query attention; the caller decides what the new tokens attend to."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.head_width = shape.head_width
        kv_width = shape.kv_heads * shape.head_width
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, kv_width, bias=False)
        self.value = nn.Linear(shape.width, kv_width, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, rotate: Rotation, attend: Attend) -> Tensor:
        """(batch, length, width) -> the same shape."""
        query, key = rotate(self._heads(self.query(x))), rotate(self._heads(self.key(x)))
        attended = attend(query, key, self._heads(self.value(x)))
        output: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return output

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_width).transpose(1, 2)


class SwiGLU(nn.Module):
    """A perceptron with a gate."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> the same shape."""
        output: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return output


class DecoderLayer(nn.Module):
    """Attention, then a perceptron, each on a normalised residual stream."""

    def __init__(
        self, shape: DecoderShape, perceptron: Callable[[DecoderShape], nn.Module] = SwiGLU
    ) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = RMSNorm(shape.width), RMSNorm(shape.width)
        self.attention, self.perceptron = Attention(shape), perceptron(shape)

    def forward(self, x: Tensor, rotate: Rotation, attend: Attend) -> Tensor:
        """(batch, length, width) -> the same shape."""
        x = x + self.attention(self.norm_1(x), rotate, attend)
        output: Tensor = x + self.perceptron(self.norm_2(x))
        return output


class Llama(nn.Module):
    """Embedding, layers, norm and head; each program defines its own forward pass."""

    def __init__(
        self, shape: DecoderShape, perceptron: Callable[[DecoderShape], nn.Module] = SwiGLU
    ) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(DecoderLayer(shape, perceptron) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.tokens.weight

    def rotation(self, positions: Tensor) -> Rotation:
        """Rotary embedding for token positions, in the type of the weights."""
        return Rotation(self.shape.head_width, positions, self.head.weight.dtype)


@contextmanager
def bfloat16_on(device: str) -> Iterator[None]:
    """Tensors created inside are on the device, and bfloat16 unless a type is given."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def frozen(shape: DecoderShape, device: str) -> Llama:
    """A Llama in bfloat16 whose weights are not trained."""
    with bfloat16_on(device):
        return Llama(shape).requires_grad_(False)


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal self-attention over a whole sequence."""
    return functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )


def choose(model: Llama, x: Tensor) -> Tensor:
    """The most likely next token (...) for hidden states (..., width)."""
    logits: Tensor = model.head(model.norm(x))
    return logits.argmax(dim=-1)
