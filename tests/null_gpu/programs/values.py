"""What can be read back from a device."""

import json
import sys

import torch

seen = {}
written = torch.tensor([3, 1, 4, 1, 5])
there = written.cuda()
seen["written"] = there.tolist()
seen["part"] = there[1:3].cpu().tolist()
moved = torch.empty_like(there)
moved.copy_(there)
seen["moved"] = moved.tolist()
there.geometric_(0.5)
seen["computed"] = there.sum().item()
torch.nonzero(there)
for _ in range(2):
    seen["selected"] = list(there[there > 0].shape)
seen["true"] = bool(there.any())
torch.cuda.synchronize()
state = {"weight": torch.arange(6.0).cuda()}
seen["saved"] = state["weight"].cpu().tolist()
print(json.dumps(seen))
if "fail" in sys.argv:
    sys.exit(7)
while "wait" in sys.argv:
    try:
        while torch.empty(1, device="cuda").geometric_(0.5).item() == 0:
            pass
    except SystemExit:
        if "caught" not in sys.argv:
            raise
