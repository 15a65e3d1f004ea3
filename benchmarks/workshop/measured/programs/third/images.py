# SPDX-License-Identifier: Apache-2.0
"""Train networks on images, volumes or sounds that the earlier rounds did not have."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[1]))
import measuring

Batch = dict[str, Any]
CLASSES = 20
BOXES = 5
"""Of each image that a detector learns from."""


class Branches(nn.Module):
    """The sum of a path and of what it starts from, as in residual networks."""

    def __init__(self, *path: nn.Module) -> None:
        super().__init__()
        self.path = nn.Sequential(*path)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        found: torch.Tensor = x + self.path(x)
        return found


class Volumes(nn.Module):
    """A U-Net of three levels for volumes, with transposed convolutions on the way up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(map(self.level, [1, *widths[:-1]], widths))
        self.raised = nn.ModuleList(
            nn.ConvTranspose3d(2 * some, some, 2, stride=2) for some in widths[:-1]
        )
        self.up = nn.ModuleList(self.level(2 * some, some) for some in widths[:-1])
        self.last = nn.Conv3d(width, CLASSES, 1)

    @staticmethod
    def level(before: int, after: int) -> nn.Sequential:
        """Two convolutions with normalization."""
        return nn.Sequential(
            *(nn.Conv3d(before, after, 3, padding=1), nn.InstanceNorm3d(after), nn.LeakyReLU()),
            *(nn.Conv3d(after, after, 3, padding=1), nn.InstanceNorm3d(after), nn.LeakyReLU()),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores of each voxel."""
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
            x = functional.max_pool3d(x, 2)
        x = kept.pop()
        for raised, level, seen in zip(
            reversed(self.raised), reversed(self.up), reversed(kept), strict=True
        ):
            x = level(torch.cat([raised(x), seen], 1))
        found: torch.Tensor = self.last(x)
        return found


def volumes(told: argparse.Namespace) -> tuple[nn.Module, Callable[[], Batch], Any]:
    """Segmentation of volumes."""
    shape = (told.side,) * 3

    def batch() -> Batch:
        labels = torch.randint(0, CLASSES, (told.batch, *shape))
        return {"x": torch.rand(told.batch, 1, *shape), "labels": labels}

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(batch["x"]), batch["labels"])

    return Volumes(told.width), batch, loss


def sounds(told: argparse.Namespace) -> tuple[nn.Module, Callable[[], Batch], Any]:
    """Dilated convolutions in one dimension over the samples of sounds."""
    width = told.width
    layers = [
        Branches(
            nn.Conv1d(width, width, 3, dilation=2**power, padding=2**power),
            nn.GELU(),
            nn.Conv1d(width, width, 1),
        )
        for power in range(10)
    ]
    model = nn.Sequential(
        nn.Conv1d(1, width, 7, padding=3), *layers, nn.Conv1d(width, 1, 7, padding=3)
    )

    def batch() -> Batch:
        return {"x": torch.randn(told.batch, 1, told.side)}

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return functional.l1_loss(model(batch["x"]), batch["x"])

    return model, batch, loss


def codec(told: argparse.Namespace) -> tuple[nn.Module, Callable[[], Batch], Any]:
    """An autoencoder of sounds: strided convolutions down, transposed ones up."""
    strides, width = (2, 4, 5, 8), told.width
    down: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
    up: list[nn.Module] = []
    for level, stride in enumerate(strides):
        narrow, wide = width << level, width << level + 1
        down += [nn.ELU(), nn.Conv1d(narrow, wide, 2 * stride, stride, (stride + 1) // 2)]
        up[:0] = [
            nn.ConvTranspose1d(
                wide, narrow, 2 * stride, stride, (stride + 1) // 2, output_padding=stride % 2
            ),
            nn.ELU(),
        ]
    model = nn.Sequential(*down, *up, nn.Conv1d(width, 1, 7, padding=3))

    def batch() -> Batch:
        return {"x": torch.randn(told.batch, 1, told.side)}

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        heard = model(batch["x"])
        return functional.l1_loss(heard, batch["x"][..., : heard.shape[-1]])

    return model, batch, loss


def resolution(told: argparse.Namespace) -> tuple[nn.Module, Callable[[], Batch], Any]:
    """Images of four times as many pixels each way, by residual blocks and pixel shuffling."""
    width = told.width

    def convolution(wide: int = width) -> nn.Conv2d:
        return nn.Conv2d(width, wide, 3, padding=1)

    raised = [layer for _ in range(2) for layer in (convolution(4 * width), nn.PixelShuffle(2))]
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        *(Branches(convolution(), nn.ReLU(), convolution()) for _ in range(16)),
        *raised,
        convolution(3),
    )

    def batch() -> Batch:
        small, large = ((told.batch, 3, side, side) for side in (told.side, 4 * told.side))
        return {"x": torch.rand(small), "sharp": torch.rand(large)}

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return functional.l1_loss(model(batch["x"]), batch["sharp"])

    return model, batch, loss


def adversaries(told: argparse.Namespace) -> tuple[nn.Module, Callable[[], Batch], Any]:
    """A generator of transposed convolutions and its critic, with a penalty on gradients."""
    width, levels = told.width, (8, 4, 2, 1)
    made: list[nn.Module] = [nn.ConvTranspose2d(100, 8 * width, 4)]
    judged: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for before, after in itertools.pairwise(levels):
        made += [nn.BatchNorm2d(before * width), nn.ReLU()]
        made.append(nn.ConvTranspose2d(before * width, after * width, 4, 2, 1))
    made += [nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh()]
    for after, before in itertools.pairwise(levels[::-1]):
        judged += [nn.Conv2d(after * width, before * width, 4, 2, 1), nn.LeakyReLU(0.2)]
    judged.append(nn.Conv2d(8 * width, 1, 4))
    model = nn.ModuleDict({"made": nn.Sequential(*made), "judged": nn.Sequential(*judged)})

    def batch() -> Batch:
        noise = torch.randn(told.batch, 100, 1, 1)
        return {"real": torch.rand(told.batch, 3, told.side, told.side), "noise": noise}

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        fake, judge = model["made"](batch["noise"]), model["judged"]
        between = (batch["real"] + fake.detach()).div(2).requires_grad_()
        (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
        penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        found: torch.Tensor = judge(fake).mean() - judge(batch["real"]).mean() + 10 * penalty
        return found

    return model, batch, loss


def styles(told: argparse.Namespace) -> tuple[nn.Module, Callable[[], Batch], Any]:
    """Images of one style as those of another: reflected borders, normalization of each image."""
    width = told.width

    def layer(before: int, after: int, size: int, stride: int = 1) -> list[nn.Module]:
        options: dict[str, Any] = {
            "stride": stride,
            "padding": size // 2,
            "padding_mode": "reflect",
        }
        return [nn.Conv2d(before, after, size, **options), nn.InstanceNorm2d(after), nn.ReLU()]

    def raised(before: int, after: int) -> list[nn.Module]:
        made = nn.ConvTranspose2d(before, after, 3, 2, 1, output_padding=1)
        return [made, nn.InstanceNorm2d(after), nn.ReLU()]

    wide = 4 * width
    model = nn.Sequential(
        *(*layer(3, width, 7), *layer(width, 2 * width, 3, 2), *layer(2 * width, wide, 3, 2)),
        *(Branches(*layer(wide, wide, 3), *layer(wide, wide, 3)[:2]) for _ in range(6)),
        *(*raised(wide, 2 * width), *raised(2 * width, width)),
        *(nn.Conv2d(width, 3, 7, padding=3, padding_mode="reflect"), nn.Tanh()),
    )

    def batch() -> Batch:
        return {"x": torch.rand(told.batch, 3, told.side, told.side)}

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        once = model(batch["x"])
        return functional.l1_loss(model(once), batch["x"])

    return model, batch, loss


def detector(told: argparse.Namespace) -> tuple[nn.Module, Callable[[], Batch], Any]:
    """A detector of torchvision; images differ in size, and each has the same number of boxes."""
    model = torchvision.models.get_model(
        told.network, weights=None, weights_backbone=None, num_classes=CLASSES
    )

    def batch() -> Batch:
        images, targets = [], []
        for place in range(told.batch):
            high, wide = told.side, told.side + 32 * (place % 3)
            corner = torch.rand(BOXES, 2) * (told.side // 2)
            target = {"boxes": torch.cat([corner, corner + 16 + torch.rand(BOXES, 2) * 99], 1)}
            target["labels"] = torch.randint(1, CLASSES, (BOXES,))
            if told.network.startswith("mask"):
                target["masks"] = torch.zeros(BOXES, high, wide, dtype=torch.uint8)
            images.append(torch.rand(3, high, wide))
            targets.append(target)
        return {"images": images, "targets": targets}

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        found: torch.Tensor = sum(model(batch["images"], batch["targets"]).values())
        return found

    return model, batch, loss


def moved(value: Any) -> Any:
    """A batch on the GPU."""
    if isinstance(value, torch.Tensor):
        return value.to("cuda")
    if isinstance(value, dict):
        return {name: moved(part) for name, part in value.items()}
    return [moved(part) for part in value]


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    model, batch, loss = globals()[told.model](told)
    model.to("cuda")
    model.train()
    stages.reach("model")

    def batches() -> Iterator[Batch]:
        for _ in itertools.count():
            yield moved(batch())

    measuring.train(told, stages, model, batches(), loss)


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    kinds = ("volumes", "sounds", "codec", "resolution", "adversaries", "styles", "detector")
    parser.add_argument("--model", choices=kinds, required=True)
    parser.add_argument("--network", default="", help="of a detector")
    parser.add_argument("--side", type=int, required=True, help="pixels or samples")
    parser.add_argument("--width", type=int, default=64, help="channels of the first layer")
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
