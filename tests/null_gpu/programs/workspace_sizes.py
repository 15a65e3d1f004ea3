"""What operators request from PyTorch's allocator in addition to their results, shape by shape.

Prints, for each case, the bytes of each alloc in order, from PyTorch's own memory history.
Arguments choose parts: `workspace_sizes.py convolutions recurrent`.
"""

import itertools
import json
import sys

import torch
import torch.nn.functional as F  # noqa: N812
from allocs_of_calls import BRAIN, DOUBLE, FLOAT, HALF, LAST, begin, case, ones, seen, trained
from torch import nn


def convolutions():
    shapes = [
        (3, 64, 7, 224, 8, {"stride": 2, "padding": 3}),
        (64, 64, 1, 56, 8, {}),
        (64, 64, 3, 56, 8, {"padding": 1}),
        (64, 64, 3, 56, 32, {"padding": 1}),
        (128, 128, 3, 28, 32, {"padding": 1, "stride": 2}),
        (256, 256, 3, 14, 32, {"padding": 1}),
        (256, 1024, 1, 14, 32, {}),
        (512, 512, 3, 7, 32, {"padding": 1}),
        (320, 320, 3, 64, 2, {"padding": 1}),
        (640, 640, 3, 32, 2, {"padding": 1}),
        (16, 33, 5, 50, 4, {}),
        (96, 96, 7, 28, 8, {"padding": 3, "groups": 96}),
        (64, 64, 3, 28, 8, {"padding": 1, "groups": 32}),
        (32, 32, 3, 64, 4, {"padding": 2, "dilation": 2}),
        (1, 8, 3, 28, 64, {}),
        (3, 768, 16, 224, 8, {"stride": 16}),
    ]
    for (c, k, r, size, batch, more), dtype, last in itertools.product(
        shapes, (FLOAT, HALF, BRAIN), (False, True)
    ):
        layer = nn.Conv2d(c, k, r, **more).to("cuda", dtype)
        images = ones(batch, c, size, size, dtype=dtype)
        if last:
            layer, images = layer.to(memory_format=LAST), images.to(memory_format=LAST)
        options = "".join(f" {key}={value}" for key, value in more.items())
        name = f"conv2d {c}->{k} {r}x{r}{options} on {batch}x{size}x{size}"
        trained(f"{name} {str(dtype)[6:]}{' channels last' * last}", layer, images)
    for dtype in (FLOAT, HALF):
        for allow in (False, True) if dtype is FLOAT else (True,):
            torch.backends.cudnn.allow_tf32 = allow
            layer = nn.Conv2d(64, 64, 3, padding=1).to("cuda", dtype)
            name = f"conv2d 64->64 on 16x40x40 {str(dtype)[6:]} tf32={allow}"
            trained(name, layer, ones(16, 64, 40, 40, dtype=dtype))
        trained(
            f"conv1d 80->384 3 on 4x3000 {str(dtype)[6:]}",
            nn.Conv1d(80, 384, 3, padding=1).to("cuda", dtype),
            ones(4, 80, 3000, dtype=dtype),
        )
        trained(
            f"conv3d 8->16 3 on 2x16x32x32 {str(dtype)[6:]}",
            nn.Conv3d(8, 16, 3).to("cuda", dtype),
            ones(2, 8, 16, 32, 32, dtype=dtype),
        )
        trained(
            f"transposed 64->32 4 on 4x16x16 {str(dtype)[6:]}",
            nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1).to("cuda", dtype),
            ones(4, 64, 16, 16, dtype=dtype),
        )
    with torch.no_grad():
        layer = nn.Conv2d(64, 64, 3, padding=1).cuda()
        for batch in (1, 2, 4, 16, 64):
            images = ones(batch, 64, 56, 56)
            case(f"conv2d 64->64 3x3 inference on {batch}x56x56", lambda x=images: layer(x))


def recurrent():
    kinds = (nn.LSTM, nn.GRU, nn.RNN)
    shapes = [(1, 1, 64, 64, 1), (16, 8, 64, 128, 1), (32, 16, 256, 512, 2), (7, 2, 16, 32, 1)]
    for kind, (steps, batch, width, hidden, layers) in itertools.product(kinds, shapes):
        for dtype, both, dropout in (
            (FLOAT, False, 0.0),
            (FLOAT, True, 0.0),
            (HALF, False, 0.0),
            (FLOAT, False, 0.1),
        ):
            if dropout and layers == 1:
                continue
            options = {"bidirectional": both, "dropout": dropout}
            layer = kind(width, hidden, layers, **options).to("cuda", dtype)
            x = ones(steps, batch, width, dtype=dtype)
            name = f"{kind.__name__} {width}->{hidden} layers={layers} on {steps}x{batch}"
            name += f" {str(dtype)[6:]}{' both' * both}{' dropout' * bool(dropout)}"
            trained(name, layer, x)
            layer.eval()
            with torch.no_grad():
                case(f"{name}, inference", lambda layer=layer, x=x: layer(x))


def transforms():
    for shape in (
        *((64,), (1000,), (1009,), (4096,), (65536,), (65537,), (1 << 20,), (8, 256), (8, 1000)),
        *((8, 1009), (64, 4096), (3, 100_003)),
    ):
        for dtype in (torch.complex64, torch.complex128):
            x = ones(*shape, dtype=dtype)
            case(f"fft of {list(shape)} {str(dtype)[6:]}", lambda x=x: torch.fft.fft(x))
        real = ones(*shape)
        case(f"rfft of {list(shape)}", lambda x=real: torch.fft.rfft(x))
        half = torch.fft.rfft(real)
        case(f"irfft of {list(half.shape)}", lambda x=half: torch.fft.irfft(x))
    for shape in ((256, 256), (8, 256, 256), (4, 1000, 1000), (2, 509, 509), (16, 64, 64, 64)):
        x = ones(*shape)
        case(f"rfft2 of {list(shape)}", lambda x=x: torch.fft.rfft2(x))
        case(f"fftn of {list(shape)}", lambda x=x: torch.fft.fftn(x.to(torch.complex64)))


def solvers():
    linear = torch.linalg
    functions = {
        "inv": linear.inv,
        "lu_factor": linear.lu_factor,
        "cholesky": linear.cholesky_ex,
        "qr": linear.qr,
        "eigh": linear.eigh,
        "eigvalsh": linear.eigvalsh,
        "svd": linear.svd,
        "svdvals": linear.svdvals,
        "det": linear.det,
        "slogdet": linear.slogdet,
    }
    for n, batch, dtype in itertools.product((10, 64, 200, 513), ((), (4,)), (FLOAT, DOUBLE)):
        a = torch.eye(n, dtype=dtype, device="cuda").expand(*batch, n, n).contiguous() * 2
        for name, function in functions.items():
            title = f"{name} of {list(a.shape)} {str(dtype)[6:]}"
            case(title, lambda function=function, a=a: function(a))
        title = f"solve of {list(a.shape)} {str(dtype)[6:]}"
        case(title, lambda a=a: linear.solve(a, a))
    for dtype in (FLOAT, DOUBLE):
        tall = torch.eye(600, 40, dtype=dtype, device="cuda")
        case(f"lstsq of 600x40 {str(dtype)[6:]}", lambda a=tall: linear.lstsq(a, a))
        case(f"qr of 600x40 {str(dtype)[6:]}", lambda a=tall: linear.qr(a))
        case(f"svd of 600x40 {str(dtype)[6:]}", lambda a=tall: linear.svd(a, False))


def products():
    for m, n, k in ((64, 64, 64), (1, 4096, 4096), (4096, 4096, 4096), (1000, 999, 1001)):
        for dtype in (FLOAT, HALF, BRAIN, DOUBLE):
            a, b, bias = ones(m, k, dtype=dtype), ones(k, n, dtype=dtype), ones(n, dtype=dtype)
            name = f"{m}x{n}x{k} {str(dtype)[6:]}"
            case(f"mm {name}", lambda a=a, b=b: a @ b)
            case(f"addmm {name}", lambda a=a, b=b, c=bias: torch.addmm(c, a, b))
            case(f"linear {name}", lambda a=a, b=b, c=bias: F.linear(a, b.t(), c))
    side = torch.cuda.Stream()
    a = ones(256, 256)
    with torch.cuda.stream(side):
        case("mm on another stream", lambda: a @ a)
    case("bmm", lambda: torch.bmm(ones(8, 64, 64), ones(8, 64, 64)))
    for n in (100, 5000):
        sparse = torch.eye(n, device="cuda").to_sparse()
        dense = ones(n, 16)
        case(f"coo @ dense {n}", lambda s=sparse, d=dense: s @ d)
        rows = sparse.to_sparse_csr()
        case(f"csr @ dense {n}", lambda s=rows, d=dense: s @ d)
        case(f"csr @ vector {n}", lambda s=rows, d=dense: s @ d[:, 0])
        case(f"csr @ csr {n}", lambda s=rows: s @ s)


def others():
    for dtype, last in itertools.product((FLOAT, HALF), (False, True)):
        norm = nn.BatchNorm2d(64).cuda()
        x = ones(16, 64, 32, 32, dtype=dtype)
        x = x.to(memory_format=LAST) if last else x
        trained(f"batch norm {str(dtype)[6:]}{' channels last' * last}", norm, x)
    logits = ones(50, 4, 20).log_softmax(2).detach().requires_grad_()
    targets = torch.ones(4, 10, dtype=torch.int32)
    lengths = torch.full((4,), 50, dtype=torch.int32), torch.full((4,), 10, dtype=torch.int32)
    case("ctc loss", lambda: F.ctc_loss(logits, targets, *lengths))
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for length, heads, width in ((128, 8, 64), (1000, 12, 64), (2048, 32, 128)):
        for backend in (
            *(SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION),
            SDPBackend.CUDNN_ATTENTION,
        ):
            with sdpa_kernel(backend):
                trained(
                    f"{backend.name} {heads}x{length}x{width}",
                    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                    *(ones(2, heads, length, width, dtype=BRAIN) for _ in range(3)),
                )
    for n in (100, 3000, 100_000, 5_000_000):
        x = torch.arange(n, device="cuda", dtype=FLOAT)
        case(f"sort {n}", lambda x=x: x.sort())
        case(f"stable sort {n}", lambda x=x: x.sort(stable=True))
        case(f"topk {n}", lambda x=x: x.topk(10))
        case(f"cumsum {n}", lambda x=x: x.cumsum(0))
        case(f"unique {n}", lambda x=x: x.unique())
        case(f"randperm {n}", lambda n=n: torch.randperm(n, device="cuda"))
        case(f"nonzero {n}", lambda x=x: x.nonzero())
        case(f"sum {n}", lambda x=x: x.sum())
        case(f"argmax {n}", lambda x=x: x.argmax())
        case(f"bincount {n}", lambda x=x: (x.long() % 10).bincount(minlength=10))
    for rows, width, many in ((1000, 64, 500), (50_000, 256, 32_768)):
        table = nn.Embedding(rows, width).cuda()
        places = torch.arange(many, device="cuda") % rows
        out = table(places)
        gradient = torch.ones_like(out)
        case(
            f"embedding {rows}x{width} of {many}, backward", lambda o=out, g=gradient: o.backward(g)
        )
        bag = nn.EmbeddingBag(rows, width, mode="sum").cuda()
        out = bag(places.view(-1, 4))
        gradient = torch.ones_like(out)
        case(f"bag {rows}x{width} of {many}, backward", lambda o=out, g=gradient: o.backward(g))


begin()
for part in (products, convolutions, recurrent, transforms, solvers, others):
    if len(sys.argv) == 1 or part.__name__ in sys.argv:
        part()
        torch.cuda.empty_cache()
print(json.dumps(seen))
