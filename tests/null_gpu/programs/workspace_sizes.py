"""What operators request from PyTorch's allocator in addition to their results, shape by shape.

Prints, for each case, the bytes of each alloc in order, from PyTorch's own memory history.
Arguments choose parts: `workspace_sizes.py convolutions recurrent`.
"""

import functools
import itertools
import json
import sys
import warnings

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

warnings.simplefilter("ignore")
HALF, BRAIN, FLOAT, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
LAST = torch.channels_last
memory = torch.cuda.memory
seen = {}


def ones(*shape, dtype=FLOAT):
    return torch.ones(*shape, dtype=dtype, device="cuda")


def case(name, function):
    """Note the allocs of a call; the inputs exist before, and the result is dropped.

    -1 comes before a request that is refused.
    """
    torch.cuda.synchronize()
    before = len(memory._snapshot()["device_traces"][0])
    try:
        result = function()
        failure = None
    except Exception as error:
        result, failure = None, f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    torch.cuda.synchronize()
    events = memory._snapshot()["device_traces"][0][before:]
    del result
    seen[name] = sizes = []
    for event in events:
        if event["action"] in ("alloc", "oom"):
            sizes += [-1, event["size"]] if event["action"] == "oom" else [event["size"]]
    if failure:
        seen[name].append(failure)
    memory._record_memory_history(enabled=None)
    memory._record_memory_history(max_entries=10_000, context=None)


def trained(name, layer, *inputs):
    """The forward and the backward call of a layer, each a case."""
    inputs = [each.requires_grad_() for each in inputs]
    kept = []

    def forward():
        out = layer(*inputs)
        kept.append(out[0] if isinstance(out, tuple) else out)

    case(f"{name}, forward", forward)
    if not kept:
        return
    gradient = torch.ones_like(kept[0])
    case(f"{name}, backward", lambda: kept[0].backward(gradient))


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


def grid():
    """The first layers of networks for small devices, by batch."""
    layers = [(3, 32, 3, 86, 2), (32, 16, 1, 43, 1), (16, 48, 1, 43, 1), (16, 96, 1, 43, 1)]
    layers += [(24, 144, 1, 22, 1), (64, 64, 3, 43, 1), (64, 256, 1, 22, 1)]
    for c, k, r, size, stride in layers:
        for batch, dtype, last in itertools.product(
            (32, 128, 240, 280, 320, 360, 400, 420, 512, 700), (FLOAT, BRAIN), (False, True)
        ):
            layer = nn.Conv2d(c, k, r, stride=stride, padding=r // 2).to("cuda", dtype)
            images = ones(batch, c, size, size, dtype=dtype)
            if last:
                layer, images = layer.to(memory_format=LAST), images.to(memory_format=LAST)
            name = f"conv2d {c}->{k} {r}x{r} stride={stride} on {batch}x{size}x{size}"
            trained(f"{name} {str(dtype)[6:]}{' channels last' * last}", layer, images)
    seen["cudnn"] = [torch.backends.cudnn.version()]


def dimensions():
    """Convolutions of sounds and volumes, transposed ones, and images with channels last."""
    kinds = (FLOAT, HALF, BRAIN)
    for (c, k, r, stride, size, batch), dtype in itertools.product(
        (
            *((1, 32, 7, 1, 24000, 8), (1, 512, 10, 5, 80000, 4), (32, 64, 4, 2, 24000, 8)),
            *((128, 128, 3, 1, 16000, 8), (128, 128, 1, 1, 16000, 8), (512, 512, 3, 2, 8000, 4)),
            *((512, 512, 2, 2, 3999, 4), (64, 1, 7, 1, 16000, 8), (80, 384, 3, 1, 3000, 16)),
        ),
        kinds,
    ):
        layer = nn.Conv1d(c, k, r, stride, r // 2).to("cuda", dtype)
        name = f"conv1d {c}->{k} {r} stride={stride} on {batch}x{size} {str(dtype)[6:]}"
        trained(name, layer, ones(batch, c, size, dtype=dtype))
    for (c, k, r, stride, sizes, batch), dtype in itertools.product(
        (
            *((1, 32, 3, 1, (64, 64, 64), 2), (32, 32, 3, 1, (64, 64, 64), 2)),
            *((32, 64, 3, 1, (32, 32, 32), 2), (64, 64, 3, 1, (32, 32, 32), 4)),
            *((128, 128, 3, 1, (16, 16, 16), 4), (3, 64, (3, 7, 7), (1, 2, 2), (16, 112, 112), 8)),
            *((64, 64, 3, 1, (16, 56, 56), 8), (64, 144, (1, 3, 3), 1, (16, 56, 56), 8)),
            *((144, 64, (3, 1, 1), 1, (16, 56, 56), 8), (64, 128, 3, 2, (16, 56, 56), 8)),
            *((64, 128, 1, 2, (16, 56, 56), 8), (256, 256, 3, 1, (4, 14, 14), 8)),
            *((24, 24, 3, 1, (40, 40, 40), 2), (32, 20, 1, 1, (64, 64, 64), 2)),
        ),
        kinds,
    ):
        padding = [side // 2 for side in r] if isinstance(r, tuple) else r // 2
        layer = nn.Conv3d(c, k, r, stride, padding).to("cuda", dtype)
        name = f"conv3d {c}->{k} {r} stride={stride} on {batch}x{sizes} {str(dtype)[6:]}"
        trained(name, layer, ones(batch, c, *sizes, dtype=dtype))
    for (c, k, r, stride, padding, size, batch), dtype, last in itertools.product(
        (
            *((100, 512, 4, 1, 0, 1, 64), (512, 256, 4, 2, 1, 4, 64), (256, 128, 4, 2, 1, 8, 64)),
            *((128, 64, 4, 2, 1, 16, 64), (64, 3, 4, 2, 1, 32, 64), (256, 128, 3, 2, 1, 64, 2)),
            *((128, 64, 2, 2, 0, 56, 8), (512, 256, 2, 2, 0, 14, 16), (64, 64, 3, 1, 1, 28, 8)),
        ),
        kinds,
        (False, True),
    ):
        layer = nn.ConvTranspose2d(c, k, r, stride, padding).to("cuda", dtype)
        images = ones(batch, c, size, size, dtype=dtype)
        if last:
            layer, images = layer.to(memory_format=LAST), images.to(memory_format=LAST)
        name = f"transposed2d {c}->{k} {r} stride={stride} on {batch}x{size}"
        trained(f"{name} {str(dtype)[6:]}{' channels last' * last}", layer, images)
    for (c, k, size, batch), dtype in itertools.product(
        ((64, 32, 32, 2), (128, 64, 16, 2), (256, 128, 8, 4)), kinds
    ):
        layer = nn.ConvTranspose3d(c, k, 2, 2).to("cuda", dtype)
        name = f"transposed3d {c}->{k} 2 stride=2 on {batch}x{size} {str(dtype)[6:]}"
        trained(name, layer, ones(batch, c, size, size, size, dtype=dtype))
    for (c, k, r, stride, size), batch, last, dtype in itertools.product(
        (
            *((3, 64, 7, 2, 224), (64, 64, 3, 1, 56), (64, 128, 3, 2, 56), (128, 128, 3, 1, 28)),
            *((128, 256, 3, 2, 28), (256, 256, 3, 1, 14), (256, 512, 3, 2, 14)),
            *((512, 512, 3, 1, 7), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56), (64, 128, 1, 2, 56)),
            *((256, 512, 1, 2, 56), (1024, 256, 1, 1, 14), (3, 96, 4, 4, 224), (96, 192, 2, 2, 56)),
            *((384, 768, 2, 2, 14), (16, 96, 1, 1, 112), (40, 240, 1, 1, 14), (24, 72, 1, 1, 56)),
        ),
        (16, 32, 64),
        ("images", "filters", "both"),
        (FLOAT, BRAIN),
    ):
        layer = nn.Conv2d(c, k, r, stride, r // 2 * (r % 2)).to("cuda", dtype)
        images = ones(batch, c, size, size, dtype=dtype)
        if last != "images":
            layer = layer.to(memory_format=LAST)
        if last != "filters":
            images = images.to(memory_format=LAST)
        name = f"conv2d {c}->{k} {r} stride={stride} on {batch}x{size} {str(dtype)[6:]}"
        trained(f"{name} channels last: {last}", layer, images)
    for (c, r, stride, size, batch), dtype, last in itertools.product(
        (
            *((96, 7, 1, 56, 32), (192, 7, 1, 28, 32), (384, 7, 1, 14, 32), (768, 7, 1, 7, 32)),
            *((32, 3, 1, 112, 64), (96, 3, 2, 112, 64), (144, 3, 1, 56, 64), (240, 5, 2, 28, 64)),
        ),
        (FLOAT, BRAIN),
        (False, True),
    ):
        layer = nn.Conv2d(c, c, r, stride, r // 2, groups=c).to("cuda", dtype)
        images = ones(batch, c, size, size, dtype=dtype)
        if last:
            layer, images = layer.to(memory_format=LAST), images.to(memory_format=LAST)
        name = f"conv2d {c} groups of one {r} stride={stride} on {batch}x{size} {str(dtype)[6:]}"
        trained(f"{name}{' channels last' * last}", layer, images)
    for (c, size, batch), r, dtype in itertools.product(
        (
            *((c, size, 16) for c in (32, 96, 192) for size in (14, 28, 56)),
            *((96, 56, batch) for batch in (1, 4, 8, 32, 64)),
            *((384, 14, 64), (128, 56, 64), (256, 28, 64), (96, 28, 32), (96, 112, 8)),
        ),
        (3, 5, 7, 9),
        (FLOAT, BRAIN),
    ):
        layer = nn.Conv2d(c, c, r, 1, r // 2, groups=c).to("cuda", dtype, memory_format=LAST)
        images = ones(batch, c, size, size, dtype=dtype).to(memory_format=LAST)
        name = f"conv2d {c} groups of one {r} on {batch}x{size} {str(dtype)[6:]} channels last"
        trained(name, layer, images)
    for (c, k, r, stride), size, batch, dtype in itertools.product(
        (
            (3, 64, 7, 2),
            (3, 32, 3, 2),
            (3, 96, 4, 4),
            (3, 64, 3, 1),
            (1, 32, 3, 1),
            (3, 768, 16, 16),
        ),
        (32, 128, 224),
        (1, 8, 24, 128),
        (FLOAT, BRAIN),
    ):
        layer = nn.Conv2d(c, k, r, stride, r // 2 * (r % 2)).to("cuda", dtype, memory_format=LAST)
        images = ones(batch, c, size, size, dtype=dtype).to(memory_format=LAST)
        name = f"conv2d {c}->{k} {r} stride={stride} on {batch}x{size} {str(dtype)[6:]}"
        trained(f"{name} channels last", layer, images)
    kinds = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    with torch.no_grad():
        for (c, k), stride, (dims, size, batch) in itertools.product(
            (
                *((32, 32), (32, 64), (64, 64), (64, 128), (128, 64), (128, 128), (96, 128)),
                *((80, 384), (256, 256), (512, 512), (48, 96), (24, 24)),
            ),
            (1, 2),
            (
                *((1, 1000, 4), (1, 4000, 8), (1, 16000, 8), (2, 28, 8), (2, 56, 16), (2, 112, 16)),
                *((3, 12, 2), (3, 24, 4), (3, 48, 2)),
            ),
        ):
            layer = kinds[dims](c, k, 3, stride, 1).to("cuda")
            name = f"conv{dims}d {c}->{k} 3 stride={stride} on {batch}x{size} inference"
            images = ones(batch, c, *[size] * dims)
            case(name, lambda layer=layer, x=images: layer(x))
    for dtype, size, both in itertools.product((FLOAT, HALF), (64, 256, 512), (False, True)):
        layer = nn.LSTM(512, 512, 2, proj_size=size // 2, bidirectional=both).to("cuda", dtype)
        trained(
            f"LSTM 512 projected to {size // 2} {str(dtype)[6:]}{' both' * both}",
            layer,
            ones(50, 16, 512, dtype=dtype),
        )
    seen["cudnn"] = [torch.backends.cudnn.version()]


def layers():
    """Convolutions that are dilated, grouped, of volumes, to few channels, or derived twice."""
    kinds = (FLOAT, HALF, BRAIN)
    both = (False, True)

    def tried(title, layer, images, last, twice=False):
        memory_format = torch.channels_last if images.dim() == 4 else torch.channels_last_3d
        if last:
            layer, images = (one.to(memory_format=memory_format) for one in (layer, images))
        trained(f"{title} {str(images.dtype)[6:]}{' channels last' * last}", layer, images)

    for (c, k, r, dilation, size, batch), dtype, last in itertools.product(
        (
            *((256, 256, 3, 2, 28, 8), (256, 256, 3, 2, 65, 2), (512, 512, 3, 4, 28, 8)),
            *((512, 512, 3, 2, 65, 4), (2048, 256, 3, 12, 28, 8), (2048, 256, 3, 24, 33, 4)),
            *((2048, 256, 3, 36, 65, 2), (960, 128, 3, 6, 33, 4), (64, 64, 3, 2, 56, 8)),
            *((128, 128, 3, 2, 32, 16), (32, 32, 3, 4, 128, 4), (64, 64, 3, 8, 64, 4)),
            *((128, 128, 3, 16, 64, 1), (48, 96, 3, 2, 40, 8)),
        ),
        kinds,
        both,
    ):
        layer = nn.Conv2d(c, k, r, padding=dilation, dilation=dilation).to("cuda", dtype)
        title = f"conv2d {c}->{k} {r} dilation={dilation} on {batch}x{size}"
        tried(title, layer, ones(batch, c, size, size, dtype=dtype), last)
    for (c, k, r, dilation, size, batch), dtype in itertools.product(
        (
            *((32, 64, 2, 1, 8000, 8), (32, 64, 2, 16, 8000, 8), (64, 64, 3, 4, 4000, 16)),
            *((64, 128, 3, 64, 4000, 4), (128, 128, 3, 2, 1000, 16), (512, 512, 3, 8, 500, 8)),
            *((25, 25, 7, 4, 400, 32), (256, 256, 7, 9, 2000, 2)),
        ),
        kinds,
    ):
        layer = nn.Conv1d(c, k, r, dilation=dilation).to("cuda", dtype)
        title = f"conv1d {c}->{k} {r} dilation={dilation} on {batch}x{size}"
        tried(title, layer, ones(batch, c, size, dtype=dtype), False)
    for (c, k, r, stride, side, batch), dtype, last in itertools.product(
        (
            *(
                (1, 32, 3, 1, 64, 2),
                (4, 32, 3, 1, 96, 1),
                (32, 32, 3, 1, 64, 2),
                (32, 64, 3, 2, 64, 2),
            ),
            *((64, 64, 3, 1, 32, 2), (64, 128, 3, 2, 32, 2), (128, 128, 3, 1, 16, 2)),
            *((128, 256, 3, 2, 16, 4), (256, 256, 3, 1, 8, 2), (256, 320, 3, 2, 8, 2)),
            *((320, 320, 3, 1, 4, 2), (640, 320, 3, 1, 8, 2), (512, 256, 3, 1, 8, 2)),
            *(
                (128, 64, 3, 1, 32, 2),
                (64, 32, 3, 1, 64, 2),
                (32, 3, 1, 1, 64, 2),
                (16, 16, 3, 1, 80, 1),
            ),
            *(
                (48, 48, 3, 1, 48, 1),
                (96, 96, 1, 1, 24, 2),
                (24, 48, 3, 2, 48, 4),
                (3, 64, 7, 2, 64, 4),
            ),
        ),
        kinds,
        both,
    ):
        layer = nn.Conv3d(c, k, r, stride, r // 2).to("cuda", dtype)
        title = f"conv3d {c}->{k} {r} stride={stride} on {batch}x{side}"
        tried(title, layer, ones(batch, c, side, side, side, dtype=dtype), last)
    for (c, k, side, batch), dtype, last in itertools.product(
        ((64, 32, 32, 2), (128, 64, 16, 2), (320, 256, 8, 2), (320, 320, 4, 2)), kinds, both
    ):
        layer = nn.ConvTranspose3d(c, k, 2, 2).to("cuda", dtype)
        title = f"transposed3d {c}->{k} 2 stride=2 on {batch}x{side}"
        tried(title, layer, ones(batch, c, side, side, side, dtype=dtype), last)
    for (c, width, stride, size, batch), dtype, last in itertools.product(
        (
            *((32, 16, 2, 112, 32), (64, 16, 2, 56, 32), (64, 16, 1, 28, 32), (160, 16, 1, 14, 32)),
            *((400, 16, 1, 7, 32), (48, 8, 1, 56, 32), (104, 8, 1, 28, 32), (208, 8, 1, 14, 32)),
            *((440, 8, 1, 7, 32), (96, 48, 1, 56, 16), (192, 48, 2, 56, 16), (432, 48, 1, 14, 16)),
            *((1008, 48, 1, 7, 16), (128, 4, 1, 56, 16), (256, 8, 2, 56, 16), (512, 16, 1, 14, 16)),
            *((256, 8, 1, 28, 64), (512, 64, 1, 14, 64), (64, 2, 1, 32, 128), (24, 24, 1, 28, 32)),
            *((232, 232, 1, 28, 16), (48, 24, 2, 112, 32), (120, 24, 1, 28, 32)),
        ),
        (FLOAT, BRAIN),
        both,
    ):
        layer = nn.Conv2d(c, c, 3, stride, 1, groups=c // width).to("cuda", dtype)
        title = f"conv2d {c} groups of {width} 3 stride={stride} on {batch}x{size}"
        tried(title, layer, ones(batch, c, size, size, dtype=dtype), last)
    for (c, k, r, size, batch), dtype, last in itertools.product(
        (
            *((64, 1, 3, 64, 16), (64, 3, 3, 128, 8), (64, 3, 9, 96, 8), (64, 21, 3, 33, 8)),
            *((32, 2, 3, 128, 4), (128, 5, 3, 32, 16), (256, 36, 3, 50, 4), (256, 9, 3, 50, 4)),
            *((64, 1, 7, 128, 2), (320, 4, 3, 64, 2), (128, 17, 3, 48, 8), (512, 24, 3, 38, 8)),
            *((256, 3, 1, 50, 4), (256, 21, 1, 65, 4), (64, 12, 3, 48, 8), (96, 27, 3, 32, 8)),
        ),
        kinds,
        both,
    ):
        layer = nn.Conv2d(c, k, r, padding=r // 2).to("cuda", dtype)
        title = f"conv2d {c}->{k} {r} on {batch}x{size}"
        tried(title, layer, ones(batch, c, size, size, dtype=dtype), last)
    for (c, k, r, stride, size, batch), dtype, last in itertools.product(
        (
            *((3, 64, 4, 2, 64, 64), (64, 128, 4, 2, 32, 64), (128, 256, 4, 2, 16, 64)),
            *((256, 512, 4, 2, 8, 64), (3, 64, 3, 1, 32, 64), (64, 64, 3, 1, 32, 64)),
            *((128, 128, 3, 1, 8, 64), (1, 32, 3, 2, 28, 128), (512, 1, 4, 1, 4, 64)),
        ),
        (FLOAT, BRAIN),
        both,
    ):
        layer = nn.Conv2d(c, k, r, stride, 1 if size > 4 else 0).to("cuda", dtype)
        images = ones(batch, c, size, size, dtype=dtype)
        if last:
            layer, images = layer.to(memory_format=LAST), images.to(memory_format=LAST)
        images.requires_grad_()
        title = f"conv2d {c}->{k} {r} stride={stride} on {batch}x{size} {str(dtype)[6:]}"
        out = layer(images)
        (slope,) = torch.autograd.grad(out, images, torch.ones_like(out), create_graph=True)
        weight = torch.ones_like(slope)
        case(
            f"{title}{' channels last' * last}, gradient of the gradient",
            lambda slope=slope, weight=weight: slope.backward(weight),
        )
    seen["cudnn"] = [torch.backends.cudnn.version()]


def refused():
    """Convolutions when there is no memory for their workspaces."""
    total = torch.cuda.get_device_properties(0).total_memory
    side = 2 << 20

    def limited(name, function, result, weight, spare):
        """A call with memory for its results and `spare` bytes."""
        torch.cuda.empty_cache()
        room = -(-(result.numel() * result.element_size() + weight.numel() * 4) // side) * side
        held = torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction((held + room + spare) / total)
        case(name, function)
        torch.cuda.set_per_process_memory_fraction(1.0)

    for (c, k, r, size, batch, more), dtype in itertools.product(
        (
            *((64, 64, 3, 56, 64, {}), (256, 256, 3, 14, 256, {}), (128, 128, 3, 56, 32, {})),
            *((3, 64, 7, 224, 64, {"stride": 2}), (256, 1024, 1, 14, 256, {})),
            *((512, 512, 3, 28, 32, {}), (256, 256, 3, 65, 16, {"dilation": 2})),
            *((96, 96, 3, 56, 64, {"groups": 6}), (512, 512, 3, 7, 256, {"stride": 2})),
            (64, 128, 1, 56, 64, {"stride": 2}),
        ),
        (FLOAT, HALF),
    ):
        layer = nn.Conv2d(c, k, r, padding=r // 2, bias=False, **more).to("cuda", dtype)
        images = ones(batch, c, size, size, dtype=dtype).requires_grad_()
        gradient = torch.ones_like(layer(images))
        layer(images).backward(gradient)
        for left in (0, 8, 64):
            title = f"conv2d {c}->{k} {r} {more} on {batch}x{size} {str(dtype)[6:]}"
            layer.zero_grad()
            images.grad = None
            run = functools.partial(layer, images)
            limited(f"{title}, forward, {left}", run, gradient, layer.weight, left << 20)
            run = functools.partial(layer(images).backward, gradient)
            limited(f"{title}, backward, {left}", run, images, layer.weight, 22 + left << 20)
            del run


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


torch.cuda.init()
memory._record_memory_history(max_entries=10_000, context=None)
for part in (products, convolutions, recurrent, transforms, solvers, others):
    if len(sys.argv) == 1 or part.__name__ in sys.argv:
        part()
        torch.cuda.empty_cache()
for part in (grid, dimensions, layers, refused):
    if part.__name__ in sys.argv:
        part()
print(json.dumps(seen))
