# SPDX-License-Identifier: Apache-2.0
"""BERT-large embedding texts, padded to a few lengths and batched up to a number of tokens.

Interesting for an allocator because bucketing is what users do to help one: texts of any length are
padded to one of six lengths, so sizes come from a small set and recur. But the last batch of a
bucket is incomplete, buckets trade batch size for length at nearly equal bytes, and the padding
mask adds blocks that grow with the square of the length.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workshop.models.llama import bfloat16_on
from benchmarks.workshop.models.program import Mark, ModelProgram

SEED = 0


@dataclass(frozen=True)
class Config:
    """The network and its texts; lengths are in tokens."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    buckets: tuple[int, ...]  # lengths that texts are padded to, increasing
    tokens: int  # of a full batch, padding included
    texts: tuple[int, ...]  # lengths of the texts by arrival


def draw_texts(count: int, longest: int) -> tuple[int, ...]:
    """Draw lengths of texts, log-normal: most are short."""
    draw = random.Random(SEED)
    typical = longest / 6
    return tuple(
        max(1, min(longest, round(typical * draw.lognormvariate(0, 0.8)))) for _ in range(count)
    )


def batches(config: Config) -> Iterator[list[int]]:
    """Batches of lengths, each from one bucket: full batches first, then the remainders."""
    waiting: dict[int, list[int]] = defaultdict(list)
    for length in config.texts:
        bucket = min(bucket for bucket in config.buckets if bucket >= length)
        waiting[bucket].append(length)
        if bucket * len(waiting[bucket]) >= config.tokens:
            yield waiting.pop(bucket)
    for bucket in sorted(waiting):
        yield waiting[bucket]


class EncoderLayer(nn.Module):
    """Attention, then a perceptron; the sum with the residual is normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(batch, length, width), and (batch, 1, length, length) true for text -> like x."""
        query, key, value = (
            projection(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, mask)
        x = self.norm_1(x + self.output(attended.transpose(1, 2).flatten(2)))
        hidden = functional.gelu(self.expand(x))
        output: Tensor = self.norm_2(x + self.contract(hidden))
        return output


class Bert(nn.Module):
    """Token and position embeddings, layers, and the mean over the text."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(max(config.buckets), config.width)
        self.norm = nn.LayerNorm(config.width)
        self.layers = nn.ModuleList(
            EncoderLayer(config.width, config.heads) for _ in range(config.layers)
        )

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Token ids (batch, length) and text lengths (batch,) -> embeddings (batch, width)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        is_text = positions < lengths[:, None]
        mask = is_text[:, None, None, :].expand(-1, 1, len(positions), -1)
        x = self.norm(self.tokens(tokens) + self.positions(positions))
        for layer in self.layers:
            x = layer(x, mask)
        summed = (x * is_text[:, :, None]).sum(1)
        return functional.normalize(summed / lengths[:, None], dim=1)


def serve(config: Config, device: str, mark: Mark) -> None:
    """Embed random texts, one step per batch."""
    mark("init")
    with bfloat16_on(device):
        model = Bert(config)
    for batch in batches(config):
        mark("step")
        mark("forward")
        padded = min(bucket for bucket in config.buckets if bucket >= max(batch))
        tokens = torch.randint(config.vocabulary, (len(batch), padded), device=device)
        model(tokens, torch.tensor(batch, device=device)).float().cpu()
        del tokens
    mark("teardown")


PROGRAM = ModelProgram(
    run=torch.no_grad()(serve),
    full=Config(
        layers=24,
        width=1024,
        heads=16,
        vocabulary=30522,
        buckets=(32, 64, 128, 256, 384, 512),
        tokens=16384,
        texts=draw_texts(count=2400, longest=512),
    ),
    tiny=Config(
        layers=3,
        width=32,
        heads=2,
        vocabulary=101,
        buckets=(4, 8, 16, 32),
        tokens=64,
        texts=draw_texts(count=40, longest=32),
    ),
    model="BERT-large, bfloat16, texts of up to 512 tokens padded to 6 lengths, batches of at most"
    " 16384 tokens, attention with a padding mask",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
