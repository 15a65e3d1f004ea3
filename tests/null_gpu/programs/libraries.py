"""Every library of NVIDIA's that PyTorch calls."""

import json
import warnings

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

warnings.simplefilter("ignore")
shapes = {}


def note(name, *tensors):
    shapes[name] = [list(tensor.shape) for tensor in tensors]


model = nn.Sequential(
    nn.Conv2d(3, 64, 7, 2, 3),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.MaxPool2d(3, 2, 1),
    nn.Conv2d(64, 128, 3, padding=1),
    nn.BatchNorm2d(128),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(128, 10),
).cuda()
for memory_format in (torch.contiguous_format, torch.channels_last):
    model = model.to(memory_format=memory_format)
    images = torch.randn(8, 3, 64, 64, device="cuda").to(memory_format=memory_format)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(images), torch.randint(0, 10, (8,), device="cuda"))
    loss.backward()
note("convolution", model[0].weight.grad)

lstm = nn.LSTM(128, 256, 2, batch_first=True).cuda()
out, _ = lstm(torch.randn(8, 32, 128, device="cuda"))
out.sum().backward()
note("lstm", out, lstm.weight_ih_l0.grad)
gru = nn.GRU(16, 32, bidirectional=True, dropout=0.1, num_layers=2).cuda()
note("gru", gru(torch.randn(5, 3, 16, device="cuda"))[0])

a = torch.randn(64, 64, device="cuda")
note("inverse", torch.linalg.inv(a))
note("svd", torch.linalg.svdvals(a))
note("eigh", torch.linalg.eigh(a)[0])
note("cholesky", torch.linalg.cholesky_ex(a)[0])
note("qr", torch.linalg.qr(a)[0])
note("solve", torch.linalg.solve(a, a))
note("fft", torch.fft.rfft2(torch.randn(8, 256, 256, device="cuda")))
note("bessel", torch.special.bessel_j0(torch.randn(100, device="cuda")))
note("sparse", torch.eye(100, device="cuda").to_sparse() @ torch.randn(100, 8, device="cuda"))
note("sort", a.sort()[0], a.flatten().topk(10)[0], a.cumsum(0))
embedding = nn.Embedding(50000, 256).cuda()
embedding(torch.randint(0, 50000, (64, 512), device="cuda")).sum().backward()
note("embedding", embedding.weight.grad)

for backend in (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.MATH,
):
    q = torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with sdpa_kernel(backend):
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    note(backend.name, q.grad)
eight = torch.randn(64, 64, device="cuda").to(torch.float8_e4m3fn)
one = torch.ones((), device="cuda")
note("fp8", torch._scaled_mm(eight, eight.t(), one, one, out_dtype=torch.bfloat16))
whole = torch.ones(64, 64, dtype=torch.int8, device="cuda")
note("int8", torch._int_mm(whole, whole))
print(json.dumps(shapes))
