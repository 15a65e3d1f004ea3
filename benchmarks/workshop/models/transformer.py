# SPDX-License-Identifier: Apache-2.0
"""The parts shared by transformers with learned layer normalisation."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(query, key, value), each (batch, heads, length, head width) -> the result of attention."""


def whole(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of every query to every key."""
    return functional.scaled_dot_product_attention(query, key, value)


class Block(nn.Module):
    """Self-attention, then a perceptron, each on a normalised residual stream."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """(batch, length, width) -> the same shape."""
        return self._perceive(self._attend(x, attend))

    def _attend(self, x: Tensor, attend: Attend) -> Tensor:
        return x + self._drop(self.projection(self._attended(self.norm_1(x), attend)))

    def _perceive(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(self.expand(self.norm_2(x)), approximate="tanh")
        return x + self._drop(self.contract(hidden))

    def _attended(self, x: Tensor, attend: Attend) -> Tensor:
        split = self.qkv(x).unflatten(2, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        return attend(query, key, value).transpose(1, 2).flatten(2)

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout)
