# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M trained with AdamW and bfloat16 autocast, with another sequence length in each step.

Interesting for an allocator because no two steps request the same sizes: memory freed by one step
nearly fits the activations of the next, but not exactly. Long-lived blocks are allocated among
short-lived ones: AdamW creates its state in the first step, after a complete forward and backward
pass; gradients appear one by one among dying activations; and autocast keeps bfloat16 copies of the
weights for the duration of a forward pass. The logits, over 50,257 tokens, and the temporaries of
the loss are blocks of up to 1.3 GiB among others of a few KiB.
"""

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workshop.models.program import Mark, ModelProgram
from benchmarks.workshop.models.transformer import Block

SEED = 0


@dataclass(frozen=True)
class Config:
    """A GPT-2 and its training; sequence lengths are in tokens, one per step."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    lengths: tuple[int, ...]
    dropout: float = 0.1
    learning_rate: float = 6e-4


def draw_lengths(steps: int, longest: int, multiple: int) -> tuple[int, ...]:
    """Draw the sequence length of each step: at least a quarter of the longest."""
    draw = random.Random(SEED)
    return tuple(draw.randrange(longest // 4, longest + 1, multiple) for _ in range(steps))


class GPT2(nn.Module):
    """Token and position embeddings, blocks, and a head that shares the token embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(max(config.lengths), config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.dropout) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (batch, length) -> logits (batch, length, vocabulary)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = functional.dropout(self.tokens(tokens) + self.positions(positions), self.dropout)
        for block in self.blocks:
            x = block(x, self._attend)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, is_causal=True
        )


def train(config: Config, device: str, mark: Mark) -> None:
    """Train on random tokens, one step for each of `config.lengths`."""
    mark("init")
    with torch.device(device):
        model = GPT2(config)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, config.learning_rate, foreach=True)
    for length in config.lengths:
        mark("step")
        mark("forward")
        shape = (config.batch, length + 1)
        text = torch.randint(config.vocabulary, shape, device=device)
        with torch.autocast(device, torch.bfloat16):
            logits = model(text[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        del logits
        mark("backward")
        torch.autograd.backward(loss)
        mark("optimizer")
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
    mark("teardown")


PROGRAM = ModelProgram(
    run=train,
    full=Config(
        layers=12,
        width=768,
        heads=12,
        vocabulary=50257,
        batch=8,
        lengths=draw_lengths(steps=12, longest=1024, multiple=8),
    ),
    tiny=Config(
        layers=2,
        width=32,
        heads=2,
        vocabulary=101,
        batch=2,
        lengths=draw_lengths(steps=3, longest=32, multiple=1),
    ),
    model="GPT-2 124M, batch 8, up to 1024 tokens, bfloat16 autocast, dropout, AdamW",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
