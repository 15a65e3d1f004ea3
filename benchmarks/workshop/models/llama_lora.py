# SPDX-License-Identifier: Apache-2.0
"""Llama-3-8B fine-tuned with LoRA (rank 16), recomputing every layer's activations.

Interesting for an allocator because of checkpointing: the forward pass keeps one block per layer
and frees everything in between. The backward pass rebuilds and drops the activations of one layer
after another, in another order and interleaved with its gradients, while the kept blocks die one by
one. Next to the 16 GB of frozen weights, which never move, live tiny blocks (adapters, their
gradients and AdamW's state, 32 KiB and up) and huge ones (the float32 logits of 128,256 tokens).
Batches are padded to their longest text, so every step has different sizes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.workshop.models.llama import (
    LLAMA3_8B,
    TINY,
    Attention,
    DecoderShape,
    Llama,
    causal,
    frozen,
)
from benchmarks.workshop.models.program import Mark, ModelProgram


@dataclass(frozen=True)
class Config:
    """The model and its fine-tuning; sequence lengths are in tokens, one per step."""

    shape: DecoderShape
    batch: int
    lengths: tuple[int, ...]
    rank: int = 16
    scale: float = 2.0
    dropout: float = 0.05
    learning_rate: float = 2e-4


class Adapted(nn.Module):
    """A frozen linear layer plus a trained product of two thin matrices."""

    def __init__(self, frozen_linear: nn.Linear, config: Config) -> None:
        super().__init__()
        self.frozen, self.scale, self.dropout = frozen_linear, config.scale, config.dropout
        weight, wide, narrow = frozen_linear.weight, frozen_linear.in_features, config.rank
        self.down = nn.Parameter(
            torch.empty(narrow, wide, dtype=weight.dtype, device=weight.device)
        )
        self.up = nn.Parameter(weight.new_zeros(frozen_linear.out_features, narrow))
        nn.init.kaiming_uniform_(self.down)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        thin = functional.linear(functional.dropout(x, self.dropout), self.down)
        output: Tensor = self.frozen(x) + functional.linear(thin, self.up) * self.scale
        return output


def adapt(model: Llama, config: Config) -> list[nn.Parameter]:
    """Add adapters to every layer's query and value; returns the trainable parameters."""
    for module in list(model.modules()):
        if isinstance(module, Attention):
            for name in ("query", "value"):
                setattr(module, name, Adapted(getattr(module, name), config))
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def loss_of(model: Llama, text: Tensor) -> Tensor:
    """Mean loss of predicting each next token of a text (batch, length + 1)."""
    positions = torch.arange(text.shape[1] - 1, device=text.device)
    rotation = model.rotation(positions)
    x = model.tokens(text[:, :-1])
    for layer in model.layers:
        x = checkpoint(layer, x, rotation, causal, use_reentrant=False)
    logits = model.head(model.norm(x))
    return functional.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())


def fine_tune(config: Config, device: str, mark: Mark) -> None:
    """Train the adapters on random tokens, one step for each of `config.lengths`."""
    mark("init")
    model = frozen(config.shape, device)
    trained = adapt(model, config)
    optimizer = torch.optim.AdamW(trained, config.learning_rate, foreach=True)
    for length in config.lengths:
        mark("step")
        mark("forward")
        text = torch.randint(config.shape.vocabulary, (config.batch, length + 1), device=device)
        loss = loss_of(model, text)
        mark("backward")
        torch.autograd.backward(loss)
        mark("optimizer")
        nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
    mark("teardown")


PROGRAM = ModelProgram(
    run=fine_tune,
    full=Config(shape=LLAMA3_8B, batch=2, lengths=(3072, 4096, 2304)),
    tiny=Config(shape=TINY, batch=2, lengths=(24, 32, 17), rank=4),
    model="Llama-3-8B shape, LoRA rank 16 on queries and values, batch 2, up to 4096 tokens,"
    " bfloat16, every layer checkpointed, AdamW",
    seed=0,
)

if __name__ == "__main__":
    PROGRAM.main()
