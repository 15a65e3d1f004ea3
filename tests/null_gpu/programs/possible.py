"""Programs whose shapes and loops depend on what a model chooses; a null GPU computes no model."""

import json

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, END = 32000, 64, 2
model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)).cuda()
found = {}


def completions():
    """Sample until all rows have ended, mask what follows the end, and train on the rest."""
    rows, prompt, most = 8, 4, 6
    ids = torch.randint(3, VOCABULARY, (rows, prompt), device="cuda")
    done = torch.zeros(rows, dtype=torch.bool, device="cuda")
    while ids.shape[1] < prompt + most and not done.all():
        token = torch.multinomial(model(ids)[:, -1].softmax(-1), 1).squeeze(1)
        done |= token == END
        ids = torch.cat([ids, token[:, None]], 1)
    completion = ids[:, prompt:]
    ended = completion == END
    last = torch.full((rows,), most, device="cuda")
    last[ended.any(1)] = ended.int().argmax(1)[ended.any(1)]
    mask = torch.arange(most, device="cuda")[None] <= last[:, None]
    loss = model(ids)[:, prompt - 1 : -1][mask].sum() / mask.sum().item()
    loss.backward()
    found["completions"] = len({tuple(row) for row in completion.tolist()}), int(mask.sum())


def beams():
    width, kept = 5, [(7,)] * 5
    for _ in range(4):
        scores = {}
        for prefix in kept:
            chances = model(torch.tensor([prefix], device="cuda"))[0, -1].log_softmax(-1)
            for score, token in zip(*chances.topk(width + 1), strict=True):
                scores[(*prefix, token.item())] = score.item()
        kept = [beam for beam in sorted(scores, key=scores.get) if beam[-1] != END][:width]
    found["beams"] = len(set(kept)), len(kept[0])


def speculation():
    ids, rounds = torch.zeros(1, 4, dtype=torch.long, device="cuda"), 0
    while ids.shape[1] < 20:
        proposed = model(ids)[0, -1].topk(4).indices
        chances = model(torch.cat([ids, proposed[None]], 1)).softmax(-1)[0, -4:]
        accepted = torch.rand(4, device="cuda") < chances.gather(1, proposed[:, None])[:, 0]
        count = 4 if accepted.all() else (~accepted).int().argmax().item()
        ids, rounds = torch.cat([ids, proposed[None, : count + 1]], 1), rounds + 1
    found["speculation"] = 3 <= rounds <= 16


def sampler():
    ordered, order = model(torch.arange(6, device="cuda")).sort(descending=True)
    ordered[ordered.softmax(-1).cumsum(-1) > 0.9] = -float("inf")
    place = ordered.softmax(-1).div(torch.empty_like(ordered).exponential_()).argmax(-1)
    tokens = order.gather(1, place[:, None])[:, 0].tolist()
    found["sampler"] = len(set(tokens)), END in tokens


def evaluation():
    right = model(torch.arange(64, device="cuda"))[:, 0] > 0
    label = torch.arange(64, device="cuda") % 2 == 0
    hits, misses = (right & label).sum().item(), (right & ~label).sum().item()
    found["evaluation"] = hits / (hits + misses)


def assigner():
    """Each object takes as many anchors as its overlaps add up to, but at least one."""
    anchors, objects = 400, 5
    predicted = nn.Linear(8, 4, device="cuda")(torch.randn(anchors, 8, device="cuda"))
    cost = torch.cdist(torch.rand(objects, 4).cuda(), predicted)
    counts = torch.clamp(cost.topk(10, dim=1).values.sum(1).int(), min=1)
    match = torch.zeros(objects, anchors, dtype=torch.uint8, device="cuda")
    for row in range(objects):
        match[row][cost[row].topk(counts[row].item(), largest=False).indices] = 1
    chosen = match.sum(0) > 0
    loss = functional.l1_loss(predicted[chosen], torch.zeros(int(chosen.sum()), 4, device="cuda"))
    (loss / chosen.sum().item()).backward()
    found["assigner"] = predicted[chosen].shape[0]


def masked():
    score = nn.Linear(4, 1, device="cuda")(torch.randn(8, 100, 4, device="cuda"))[..., 0]
    mask = score > 0.05
    found["copied"] = int((score > 0).cpu().sum())
    found["masked"] = score[mask].shape[0], int(mask.sum()), mask.sum(1).tolist()


def periods():
    """A series is folded at its strongest frequencies, and the constant one is not among them."""
    series = nn.Linear(8, 8, device="cuda")(torch.randn(4, 96, 8, device="cuda"))
    strength = torch.fft.rfft(series, dim=1).abs().mean((0, 2))
    strength[0] = 0
    lengths = (96 // strength.topk(3).indices.cpu()).tolist()
    found["periods"] = [series[:, : 96 // n * n].unflatten(1, (-1, n)).dim() for n in lengths]


def policy():
    mean, deviation = nn.Linear(8, 6, device="cuda")(torch.randn(4, 8, device="cuda")).chunk(2, 1)
    action = torch.distributions.Normal(mean, deviation.exp()).sample()
    found["policy"] = [*action.shape]


for function in (completions, beams, speculation, sampler, evaluation, assigner, masked, periods):
    function()
policy()
print(json.dumps(found))
