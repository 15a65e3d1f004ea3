"""What convolutions of many kinds request from PyTorch's allocator, call by call.

Prints, for each case, the bytes of each alloc in order. Arguments choose parts:
`convolution_workspaces.py layers refused`.
"""

import functools
import itertools
import json
import sys

import torch
from allocs_of_calls import BRAIN, FLOAT, HALF, LAST, begin, case, ones, seen, trained
from torch import nn


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


def benchmarked():
    """The calls in which cuDNN's algorithms are tried, and those after them."""
    torch.backends.cudnn.benchmark = True
    for (c, k, r, stride, size, batch), dtype, last in itertools.product(
        (
            *((3, 64, 7, 2, 224, 32), (64, 64, 3, 1, 56, 32), (64, 64, 3, 1, 56, 96)),
            *((128, 128, 3, 1, 28, 32), (128, 128, 3, 2, 56, 32), (256, 256, 3, 1, 14, 32)),
            *((256, 256, 3, 1, 14, 96), (512, 512, 3, 1, 7, 32), (512, 512, 3, 1, 7, 96)),
            *((512, 512, 3, 2, 14, 96), (64, 256, 1, 1, 56, 32), (256, 64, 1, 1, 56, 32)),
            *((256, 128, 1, 1, 56, 32), (256, 512, 1, 2, 56, 32), (512, 128, 1, 1, 28, 32)),
            *((1024, 256, 1, 1, 14, 32), (256, 1024, 1, 1, 14, 96), (2048, 512, 1, 1, 7, 96)),
            *((512, 2048, 1, 1, 7, 96), (1024, 2048, 1, 2, 14, 96), (3, 64, 3, 1, 224, 16)),
            *((64, 64, 3, 1, 224, 16), (128, 128, 3, 1, 112, 16), (256, 256, 3, 1, 56, 16)),
            *((512, 512, 3, 1, 28, 16), (512, 512, 3, 1, 14, 16), (64, 128, 3, 1, 112, 16)),
            *((32, 32, 3, 1, 128, 8), (320, 320, 3, 1, 64, 4), (640, 640, 3, 1, 32, 4)),
            *((1280, 1280, 3, 1, 16, 4), (16, 33, 5, 1, 50, 8), (96, 256, 5, 1, 27, 64)),
            *((256, 384, 3, 1, 13, 64), (192, 384, 3, 1, 13, 128), (3, 32, 3, 2, 224, 64)),
            (32, 64, 3, 1, 112, 32),
        ),
        (FLOAT, HALF),
        (False, True),
    ):
        layer = nn.Conv2d(c, k, r, stride, r // 2, bias=False).to("cuda", dtype)
        images = ones(batch, c, size, size, dtype=dtype)
        if last:
            layer, images = layer.to(memory_format=LAST), images.to(memory_format=LAST)
        images.requires_grad_()
        name = f"conv2d {c}->{k} {r} stride={stride} on {batch}x{size} {str(dtype)[6:]}"
        name += " channels last" * last
        for number in (1, 2):
            case(f"{name}, forward, {number}", functools.partial(layer, images))
            out = layer(images)
            gradient = torch.ones_like(out)
            images.grad = layer.weight.grad = None
            run = functools.partial(out.backward, gradient)
            case(f"{name}, backward, {number}", run)
        torch.cuda.empty_cache()


begin()
for part in (grid, dimensions, layers, refused, benchmarked):
    if part.__name__ in sys.argv:
        part()
print(json.dumps(seen))
