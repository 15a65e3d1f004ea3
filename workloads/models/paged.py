# SPDX-License-Identifier: Apache-2.0
"""A key-value cache in pages of a fixed number of tokens, and attention that reads it as it lies.

Serving systems have kernels for this that need no memory but their output. Here one operator
stands for such a kernel: what it does inside, with operators of PyTorch's own, is not captured.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from allocbench.workloads.models.llama import Llama, Shape, choose

PAGE = 16
"""Tokens of a page."""


Page = TypeVar("Page")


@dataclass(eq=False)
class Sequence(Generic[Page]):
    """A text being read and written, and the pages that hold its keys and values."""

    prompt: int
    answer: int  # tokens still to write
    read: int = 0  # tokens in the cache
    pages: list[Page] = field(default_factory=list)
    token: Tensor | None = None  # (1,), the newest one written

    def lacks(self, tokens: int) -> int:
        """Number of pages it needs, beyond those it has, to read so many more tokens."""
        return max(0, pages_for(self.read + tokens) - len(self.pages))


def pages_for(tokens: int) -> int:
    """Number of pages that hold so many tokens."""
    return -(-tokens // PAGE)


def make_pages(count: int, layers: int, shape: Shape, device: str) -> Tensor:
    """Empty pages (count, layers, 2, PAGE, kv_heads, head width): keys, then values."""
    size = (count, layers, 2, PAGE, shape.kv_heads, shape.head_width)
    return torch.empty(size, dtype=torch.bfloat16, device=device)


def write_next(
    model: Llama,
    sequences: Items[Sequence[Page]],
    tokens: list[Tensor],
    pages_of: Callable[[int], tuple[list[Tensor], int]],
    table: list[int],
) -> None:
    """Read new tokens (count,) of each sequence in one pass, and write the token after them.

    The sequences must have the pages for them. pages_of: layer -> tensors of pages, and which of
    their layers it is. table: indices of the sequences' pages in those tensors, end to end.
    """
    counts, device = [len(new) for new in tokens], tokens[0].device
    lengths = [sequence.read + count for sequence, count in zip(sequences, counts, strict=True)]
    spans = zip(sequences, lengths, strict=True)
    positions = torch.cat([torch.arange(s.read, end, device=device) for s, end in spans])
    rotation = model.rotation(positions)
    x = model.tokens(torch.cat(tokens))[None]
    for index, layer in enumerate(model.layers):

        def attend(query: Tensor, key: Tensor, value: Tensor, index: int = index) -> Tensor:
            flat = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
            attended: Tensor = paged_attention(*flat, *pages_of(index), table, counts, lengths)
            return attended.transpose(0, 1)[None]

        x = layer(x, rotation, attend)
    ends = torch.tensor(counts, device=device).cumsum(0) - 1
    written = choose(model, x[0, ends])
    for sequence, length, token in zip(sequences, lengths, written, strict=True):
        sequence.read, sequence.token = length, token[None]


@torch.library.custom_op("allocbench::paged_attention", mutates_args=("pages",))
def paged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pages: list[Tensor],
    layer: int,
    table: list[int],
    counts: list[int],
    lengths: list[int],
) -> Tensor:
    """Write new keys and values into their pages, then attend to all there are.

    query (tokens, heads, head width) and key, value (tokens, kv_heads, head width) hold, for each
    sequence, its newest `counts` tokens; its length, those included, is in `lengths`, and the
    indices of its pages stand in `table`, sequence after sequence. Returns what `query` attends
    to, each token to those before it, in the shape of `query`.
    """
    singles = [page[layer] for tensor in pages for page in tensor]
    output, first = query.new_empty(query.shape), 0
    for count, length in zip(counts, lengths, strict=True):
        mine = [singles[index] for index in table[: pages_for(length)]]
        table = table[len(mine) :]
        new = slice(first, first + count)
        first += count
        for at in range((length - count) // PAGE, len(mine)):
            begin, end = max(length - count, at * PAGE), min(length, (at + 1) * PAGE)
            rows = slice(new.start + begin - length + count, new.start + end - length + count)
            mine[at][0, begin - at * PAGE : end - at * PAGE] = key[rows]
            mine[at][1, begin - at * PAGE : end - at * PAGE] = value[rows]
        keys, values = torch.cat(mine, dim=1)[:, :length].transpose(1, 2)
        mask = torch.ones(count, length, dtype=torch.bool, device=query.device)
        output[new] = functional.scaled_dot_product_attention(
            query[new].transpose(0, 1)[None],
            keys[None],
            values[None],
            mask.tril(length - count),
            enable_gqa=True,
        )[0].transpose(0, 1)
    return output


@paged_attention.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pages: list[Tensor],
    layer: int,
    table: list[int],
    counts: list[int],
    lengths: list[int],
) -> Tensor:
    return query.new_empty(query.shape)
