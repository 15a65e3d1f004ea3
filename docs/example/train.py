# SPDX-License-Identifier: Apache-2.0
"""Train a GPT of 350 million parameters on random tokens."""

import argparse

import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, TOKENS, VOCABULARY = 1024, 24, 16, 1024, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, tokens, _ = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


options = argparse.ArgumentParser()
options.add_argument("--batch", type=int, default=8)
batch = options.parse_args().batch
model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for _ in range(20):
    ids = torch.randint(VOCABULARY, (batch, TOKENS + 1), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(ids[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
