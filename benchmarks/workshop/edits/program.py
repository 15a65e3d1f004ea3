# SPDX-License-Identifier: Apache-2.0
"""A training program whose command line makes the edits of `allocbench whatif`.

    python program.py MODEL [--batch N] [--checkpoint N] [--parts N] [...]

It needs PyTorch and a GPU, or a null GPU; nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

TOKENS, VOCABULARY, IMAGE, CLASSES = 512, 20_000, 224, 1000


class Attention(nn.Module):
    """Causal attention, fused or with the matrix of scores."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(width, 2)
        )
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            scores = (q @ k.transpose(-1, -2)).masked_fill(future, float("-inf"))
            y = self.dropout(scores.softmax(-1)) @ v
        y = y.transpose(1, 2).reshape(batch, tokens, width)
        out: Tensor = self.dropout(self.projection(y))
        return out


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        x = x + self.attention(self.norm_1(x))
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


class Transformer(nn.Module):
    """A language model. fused: whether attention keeps no scores."""

    def __init__(self, fused: bool, width: int = 768, layers: int = 8, heads: int = 12) -> None:
        super().__init__()
        self.logits: Tensor | None = None
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(Block(width, heads, fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: Tensor, every: int) -> Tensor:
        """The states before the head, (batch, tokens, width); every: checkpointed blocks, or 0."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        out: Tensor = self.norm(_through(self.blocks, x, every))
        return out

    def loss(self, batch: int, every: int, chunks: int) -> Tensor:
        """The loss of random tokens, with logits in some chunks."""
        ids = torch.randint(0, VOCABULARY, (batch, TOKENS + 1), device="cuda")
        states, targets = self(ids[:, :-1], every).flatten(0, 1), ids[:, 1:].flatten()
        if chunks == 1:
            self.logits = self.head(states)
            return functional.cross_entropy(self.logits, targets)

        def part(states: Tensor, targets: Tensor) -> Tensor:
            return functional.cross_entropy(self.head(states), targets, reduction="sum")

        pairs = zip(states.chunk(chunks), targets.chunk(chunks), strict=True)
        parts = [checkpoint(part, *pair, use_reentrant=False) for pair in pairs]
        return torch.stack(parts).sum() / len(targets)


class Bottleneck(nn.Module):
    """A block of a residual network."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        width = outputs // 4
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        out: Tensor = self.relu(self.convolutions(x) + self.shortcut(x))
        return out


class ResidualNetwork(nn.Module):
    """The shape of a ResNet-50."""

    def __init__(self) -> None:
        super().__init__()
        self.logits: Tensor | None = None
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        )
        self.blocks, width = nn.ModuleList(), 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for number in range(count):
                stride = 2 if stage and not number else 1
                self.blocks.append(Bottleneck(width, 256 << stage, stride))
                width = 256 << stage
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor, every: int) -> Tensor:
        """The logits (batch, classes) of images; every: checkpointed blocks, or 0."""
        x = functional.max_pool2d(self.stem(images), 3, 2, 1)
        out: Tensor = self.head(_through(self.blocks, x, every).mean((2, 3)))
        return out

    def loss(self, batch: int, every: int, chunks: int) -> Tensor:
        """The loss of random images; chunks: 1."""
        logits = self(torch.randn(batch, 3, IMAGE, IMAGE, device="cuda"), every)
        return functional.cross_entropy(logits, torch.randint(0, CLASSES, (batch,), device="cuda"))


def _through(blocks: nn.ModuleList, x: Tensor, every: int) -> Tensor:
    for number, block in enumerate(blocks):
        chosen = every and number % every == 0
        x = checkpoint(block, x, use_reentrant=False) if chosen else block(x)
    return x


class _Loss(nn.Module):
    """The loss as the forward pass, which DistributedDataParallel needs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: int, every: int, chunks: int) -> Tensor:
        """The loss of a random batch."""
        loss: Tensor = self.model.loss(batch, every, chunks)  # type: ignore[operator]
        return loss


def _shard(model: nn.Module, whole_in_backward: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    ends_early = False if whole_in_backward else None
    for block in model.blocks:  # type: ignore[union-attr]
        fully_shard(block, reshard_after_forward=ends_early)
    fully_shard(model, reshard_after_forward=ends_early)


def _updated_in_backward(parameters: Iterator[nn.Parameter], kind: type) -> None:
    for parameter in parameters:
        optimizer = kind([parameter], lr=1e-4, foreach=False)

        def update(_parameter: Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(update)  # type: ignore[no-untyped-call]


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["scores", "fused", "residual"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--optimizer", default="AdamW")
    parser.add_argument("--checkpoint", type=int, default=0, help="every Nth block; 0: none")
    parser.add_argument("--parts", type=int, default=1, help="of each batch")
    parser.add_argument("--chunks", type=int, default=1, help="of logits and loss")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--no-state", action="store_true", help="as if it were in host memory")
    parser.add_argument("--in-backward", action="store_true")
    parser.add_argument("--keep-gradients", action="store_true")
    parser.add_argument("--free-gradients", action="store_true", help="after all")
    parser.add_argument("--keep-logits", action="store_true", help="until the next forward pass")
    parser.add_argument("--free-logits", action="store_true", help="at the end of each step")
    parser.add_argument("--efficient", action="store_true", help="attention without scores")
    parser.add_argument("--zero", type=int, choices=[1, 2, 3], help="by PyTorch's own means")
    parser.add_argument("--buckets", action="store_true", help="DistributedDataParallel")
    parser.add_argument("--views", action="store_true", help="gradients are views of its buckets")
    options = parser.parse_args()
    language = options.model != "residual"
    fused = options.model == "fused" or options.efficient
    model = (Transformer(fused) if language else ResidualNetwork()).cuda()
    if options.zero or options.buckets:
        torch.distributed.init_process_group("nccl")
    if options.zero in (2, 3):
        _shard(model, whole_in_backward=options.zero == 2)
    step: nn.Module = _Loss(model)
    if options.buckets:
        step = nn.parallel.DistributedDataParallel(step, gradient_as_bucket_view=options.views)
    kind = getattr(torch.optim, options.optimizer)
    optimizer = None
    if options.in_backward:
        _updated_in_backward(model.parameters(), kind)
    elif options.no_state:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    else:
        momentum = {"momentum": 0.9} if options.optimizer == "SGD" else {}
        fused = {"fused": True} if options.fused else {}
        if options.zero == 1:
            kind = partial(ZeroRedundancyOptimizer, optimizer_class=kind)
        optimizer = kind(model.parameters(), lr=1e-4, **momentum, **fused)
    for _ in range(options.steps):
        if optimizer:
            optimizer.zero_grad(set_to_none=options.free_gradients or not options.keep_gradients)
        for _ in range(options.parts):
            with torch.autocast("cuda", torch.bfloat16, enabled=options.autocast):
                batch = options.batch // options.parts
                loss = step(batch, options.checkpoint, options.chunks)
            if not options.keep_logits:
                model.logits = None
            (loss / options.parts).backward()
        if optimizer:
            optimizer.step()
        if options.free_logits:
            model.logits = None


if __name__ == "__main__":
    main()
