"""Convolutions of every kind, with the workspaces that PyTorch allocates for them."""

import json
import sys

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

torch.backends.cudnn.benchmark = "benchmark" in sys.argv
torch.backends.cudnn.deterministic = "deterministic" in sys.argv
seen = {}


def run(name, layer, size, dtype=torch.float32, memory_format=torch.contiguous_format):
    layer = layer.to("cuda", dtype, memory_format=memory_format)
    images = torch.randn(2, *size, device="cuda", dtype=dtype)
    images = images.to(memory_format=memory_format).requires_grad_()
    torch.cuda.reset_accumulated_memory_stats()
    for _ in range(2):
        out = layer(images)
        out.sum().backward()
    assert layer.weight.grad.shape == layer.weight.shape
    requested = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
    seen[name] = [list(out.shape), requested]


last = torch.channels_last
run("float", nn.Conv2d(8, 16, 3), (8, 16, 16))
run("half", nn.Conv2d(8, 16, 3), (8, 16, 16), torch.float16)
run("channels last", nn.Conv2d(8, 16, 3), (8, 16, 16), torch.float16, last)
run("grouped", nn.Conv2d(8, 16, 3, groups=2), (8, 16, 16))
run("one pixel", nn.Conv2d(8, 16, 1), (8, 16, 16))
run("transposed", nn.ConvTranspose2d(8, 16, 3), (8, 16, 16))
run("dilated", nn.Conv2d(8, 16, 3, padding=2, dilation=2), (8, 16, 16))
run("three dimensions", nn.Conv3d(8, 16, 3), (8, 8, 8, 8))
x, weight = torch.randn(2, 8, 16, 16, device="cuda"), torch.randn(16, 8, 3, 3, device="cuda")
out = torch.cudnn_convolution_relu(x, weight, None, (1, 1), (1, 1), (1, 1), 1)
seen["relu"] = list(out.shape)
out = torch.cudnn_convolution_add_relu(x, weight, out, 1.0, None, (1, 1), (1, 1), (1, 1), 1)
seen["added"] = list(F.relu(out).shape)
print(json.dumps(seen))
