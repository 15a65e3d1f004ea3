"""Values that PyTorch reads itself: its checks, a GradScaler's scale, lengths."""

import json
import sys

import torch
from torch.distributions import Categorical, Normal

there = torch.ones(4, device="cuda") * 2
torch._check_tensor_all(there > 0)
drawn = torch.empty(4, device="cuda").geometric_(0.5)
torch.testing.assert_close(drawn, torch.empty(4, device="cuda").geometric_(0.5))
try:
    torch.testing.assert_close(there, there + 1)
except AssertionError:
    pass
else:
    raise SystemExit("known values are compared")
torch.jit.trace(torch.nn.Linear(4, 4, device="cuda"), drawn)
assert (drawn > 1).all(), f"{drawn}"
assert not (drawn < 0).any().item()
if not (drawn > 1).any() or (drawn > 2)[0].item():
    reason = f"of {len(drawn)}"
    raise ValueError(reason)
seen = {"shapes": []}
for distribution in (Normal(drawn, drawn), Categorical(logits=there)):
    seen["shapes"].append(list(distribution.log_prob(distribution.sample()).shape))
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
scaler.scale(there)
seen["scale"] = scaler.get_scale()
seen["chosen"] = [float(drawn.sum()) for number_with_a_long_name in (1,) if number_with_a_long_name]
print(drawn, file=sys.stderr)
steps, batch, length = 10, 4, 5
lengths = torch.full((batch,), length).cuda() * 1
targets = torch.ones(batch, length, dtype=torch.long, device="cuda")
probabilities = torch.rand(steps, batch, 6, device="cuda").log_softmax(-1)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
torch.nn.functional.ctc_loss(probabilities, targets, lengths + 5, lengths, reduction="none")
seen["ctc"] = torch.cuda.max_memory_allocated() - before > steps * batch * (2 * length + 1) * 4
print(json.dumps(seen))
