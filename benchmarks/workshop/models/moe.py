# SPDX-License-Identifier: Apache-2.0
"""A mixture-of-experts transformer of 2.7 billion parameters trained with fused AdamW.

Interesting for an allocator because of uneven experts: in every layer and step, each of eight
experts gets another number of tokens, from a few to a third of all, so its gathered inputs, its
three hidden blocks and its outputs have sizes that never recur, and all of them live until the
backward pass reaches the layer. Everything else is regular: attention's blocks and the logits are
the same in each step.

The number of tokens per expert is drawn on the host, skewed as in routers that are not yet
balanced, rather than taken from the router's scores, which only weight the experts' outputs: sizes
must not depend on computed values, because a null GPU computes none.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workshop.models.llama import DecoderShape, Llama, SwiGLU, bfloat16_on, causal
from benchmarks.workshop.models.program import Mark, ModelProgram

SEED = 0

Route = Callable[[int], list[int]]
"""Number of routed copies of tokens -> number of copies for each expert."""


@dataclass(frozen=True)
class Config:
    """The model and its training; `hidden` of the shape is that of one expert."""

    shape: DecoderShape
    experts: int
    chosen: int  # experts per token
    batch: int
    length: int
    steps: int
    learning_rate: float = 3e-4


class Experts(nn.Module):
    """Experts: each token goes to a few, and a router weights their outputs."""

    def __init__(self, shape: DecoderShape, config: Config, route: Route) -> None:
        super().__init__()
        self.route, self.chosen = route, config.chosen
        self.router = nn.Linear(shape.width, config.experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(shape) for _ in range(config.experts))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> the same shape."""
        tokens = x.flatten(0, 1)
        weights = functional.softmax(self.router(tokens), dim=-1, dtype=torch.float32).type_as(x)
        copies = len(tokens) * self.chosen
        order = torch.randperm(copies, device=x.device) % len(tokens)
        result = torch.zeros_like(tokens)
        for index, rows in enumerate(torch.split(order, self.route(copies))):
            answer = self.experts[index](tokens[rows]) * weights[rows, index, None]
            result.index_add_(0, rows, answer)
        return result.view_as(x)


def skewed_route(experts: int) -> Route:
    """A route that draws the experts' shares again for every layer of every step."""
    draw = random.Random(SEED)

    def route(copies: int) -> list[int]:
        shares = [draw.gammavariate(2.0, 1.0) for _ in range(experts)]
        bounds = [round(copies * sum(shares[:i]) / sum(shares)) for i in range(experts + 1)]
        return [end - start for start, end in pairwise(bounds)]

    return route


def train(config: Config, device: str, mark: Mark) -> None:
    """Train on random tokens."""
    mark("init")
    route = skewed_route(config.experts)
    with bfloat16_on(device):
        model = Llama(config.shape, lambda shape: Experts(shape, config, route))
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, config.learning_rate, fused=True)
    vocabulary, size = config.shape.vocabulary, (config.batch, config.length + 1)
    for _ in range(config.steps):
        mark("step")
        mark("forward")
        text = torch.randint(vocabulary, size, device=device)
        rotation = model.rotation(torch.arange(config.length, device=device))
        x = model.tokens(text[:, :-1])
        for layer in model.layers:
            x = layer(x, rotation, causal)
        logits = model.head(model.norm(x)).flatten(0, 1)
        loss = functional.cross_entropy(logits.float(), text[:, 1:].flatten())
        del x, logits
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
        shape=DecoderShape(
            layers=12, width=2048, heads=16, kv_heads=4, hidden=4096, vocabulary=32000
        ),
        experts=8,
        chosen=2,
        batch=4,
        length=2048,
        steps=4,
    ),
    tiny=Config(
        shape=DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=48, vocabulary=101),
        experts=4,
        chosen=2,
        batch=2,
        length=16,
        steps=3,
    ),
    model="Mixture-of-experts transformer of 2.7 billion parameters, 8 experts of which 2 for each"
    " token, batch 4 of 2048 tokens, bfloat16, fused AdamW",
    seed=SEED,
)

if __name__ == "__main__":
    PROGRAM.main()
