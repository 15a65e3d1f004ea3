"""LBFGS decides by values how many iterations it makes, and keeps a history of them."""

import json

import torch


def history(device, search):
    """Iterations, evaluations, and the length of the history after three steps."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(64, 32, device=device))
    other = torch.nn.Parameter(torch.randn(9, dtype=weight.dtype, device=device))
    optimizer = torch.optim.LBFGS(
        [weight, other], lr=0.1, max_iter=6, history_size=5, line_search_fn=search
    )
    scale = torch.arange(1, 33, device=device) / 32

    def closure():
        optimizer.zero_grad()
        loss = (weight.square() * scale).sum() + other.pow(4).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    state = optimizer.state[weight]
    return [state["n_iter"], state["func_evals"], len(state["old_dirs"])]


seen = {
    device: [history(device, search) for search in (None, "strong_wolfe")]
    for device in ("cpu", "cuda")
}
x = torch.empty(9, device="cuda").geometric_(0.5)
seen["close"] = [
    torch.allclose(x, x * 2),
    torch.allclose(torch.ones(2).cuda(), torch.zeros(2).cuda()),
]
print(json.dumps(seen))
