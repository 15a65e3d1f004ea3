# SPDX-License-Identifier: Apache-2.0
"""A key-value cache in pages of a fixed number of tokens, and attention that reads it in place.

Serving systems have kernels for this that need no memory except for their output. Here one operator
stands for such a kernel. On a CPU it computes attention with PyTorch's operators. On a GPU it only
makes its output, filled with zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.workshop.models.llama import DecoderShape, Llama, choose

PAGE = 16
"""Tokens per page."""


Page = TypeVar("Page")


@dataclass(eq=False)
class PagedSequence(Generic[Page]):
    """A text that is being processed or generated, and the pages of its keys and values."""

    prompt: int
    answer: int  # tokens still to generate
    read: int = 0  # tokens in the cache
    pages: list[Page] = field(default_factory=list)
    token: Tensor | None = None  # (1,), the last generated token

    def lacks(self, tokens: int) -> int:
        """Number of additional pages needed to process this many more tokens."""
        return max(0, pages_for(self.read + tokens) - len(self.pages))


def pages_for(tokens: int) -> int:
    """Number of pages for this many tokens."""
    return -(-tokens // PAGE)


def make_pages(count: int, layers: int, shape: DecoderShape, device: str) -> Tensor:
    """Empty pages (count, layers, 2, PAGE, kv_heads, head width): keys, then values."""
    size = (count, layers, 2, PAGE, shape.kv_heads, shape.head_width)
    return torch.empty(size, dtype=torch.bfloat16, device=device)


def write_next(
    model: Llama,
    sequences: Sequence[PagedSequence[Page]],
    tokens: list[Tensor],
    pages_of: Callable[[int], tuple[list[Tensor], int]],
    table: list[int],
) -> None:
    """Process new tokens (count,) of each sequence in one pass, and generate the token after them.

    The sequences must already have the pages. pages_of: layer -> tensors of pages, and the index of
    the layer in them. table: concatenated indices of the sequences' pages in those tensors.
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
    """Write new keys and values into their pages, then attend to all of them.

    query (tokens, heads, head width) and key, value (tokens, kv_heads, head width) contain, for
    each sequence, its newest `counts` tokens. `lengths` has the total lengths, and `table` the
    indices of the pages, sequence after sequence. Returns the result of causal attention in the
    shape of `query`.
    """
    singles = [page[layer] for tensor in pages for page in tensor]
    output, first = query.new_empty(query.shape), 0
    for count, length in zip(counts, lengths, strict=True):
        mine = [singles[index] for index in table[: pages_for(length)]]
        table = table[len(mine) :]
        new = slice(first, first + count)
        first += count
        for index in range((length - count) // PAGE, len(mine)):
            begin, end = max(length - count, index * PAGE), min(length, (index + 1) * PAGE)
            rows = slice(new.start + begin - length + count, new.start + end - length + count)
            mine[index][0, begin - index * PAGE : end - index * PAGE] = key[rows]
            mine[index][1, begin - index * PAGE : end - index * PAGE] = value[rows]
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


@paged_attention.register_kernel("cuda")
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
    return query.new_zeros(query.shape)
