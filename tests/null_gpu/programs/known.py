"""Values that PyTorch reads itself: its checks of values, and the scale of a GradScaler."""

import json

import torch
from torch.distributions import Categorical, Normal

there = torch.ones(4, device="cuda") * 2
torch._check_tensor_all(there > 0)
drawn = torch.rand(4, device="cuda")
torch.testing.assert_close(drawn, torch.rand(4, device="cuda"))
try:
    torch.testing.assert_close(there, there + 1)
except AssertionError:
    pass
else:
    raise SystemExit("known values are compared")
torch.jit.trace(torch.nn.Linear(4, 4, device="cuda"), drawn)
seen = {"shapes": []}
for distribution in (
    Normal(there, there),
    Categorical(logits=there),
):
    seen["shapes"].append(list(distribution.log_prob(distribution.sample()).shape))
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
scaler.scale(there)
seen["scale"] = scaler.get_scale()
seen["chosen"] = [float(drawn.sum()) for number_with_a_long_name in (1,) if number_with_a_long_name]
print(json.dumps(seen))
