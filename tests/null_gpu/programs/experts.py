"""Experts that get the tokens which a router sends them."""

import json
import sys

import torch
from torch import nn

READS = sys.modules["allocbench_inside"]._process._reads


class Experts(nn.Module):
    def __init__(self, count=8, each=2):
        super().__init__()
        self.router, self.each = nn.Linear(16, count), each
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(count))
        self.tokens = []

    def forward(self, x):
        weights, selected = self.router(x).softmax(-1).topk(self.each, dim=-1)
        mask = nn.functional.one_hot(selected, len(self.experts)).permute(2, 1, 0)
        result, self.tokens = torch.zeros_like(x), []
        for number, expert in enumerate(self.experts):
            place, token = torch.where(mask[number])
            self.tokens.append(len(token))
            sent = expert(x[token]) * weights[token, place, None]
            result.index_add_(0, token, sent)
        return result


seen = {}
for each in (1, 2, 3):
    model = Experts(each=each).cuda()
    model(torch.randn(40, 16, device="cuda")).sum().backward()
    seen[each] = model.tokens
    with torch.inference_mode():
        model(torch.randn(80, 16, device="cuda"))
    seen[f"{each}, inference"] = model.tokens
scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]]).cuda()
seen["known"] = scores.topk(2).indices.tolist()
selected = torch.mm(scores.T, scores).expand(4, 3, 3)
seen["different"] = [len(set(row)) for row in selected.topk(2)[1].flatten(0, 1).tolist()]
nearest = (selected.flatten().expand(4000, 36).cumsum(0)[..., None] - scores.flatten()).min(-1)
seen["nearest"] = nearest.indices.flatten()[:100_002].bincount().tolist()  # of six codes
seen["reads"] = dict(READS.sites)
print(json.dumps(seen))
