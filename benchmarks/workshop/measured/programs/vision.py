# SPDX-License-Identifier: Apache-2.0
"""Train or evaluate a model for images or videos: one of torchvision, or timm:NAME."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import measuring
import torch
import torchvision


class Images(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images or videos of random values, and their classes."""

    def __init__(self, told: argparse.Namespace) -> None:
        frames = (told.frames,) if told.frames else ()
        self._shape = (3, *frames, told.side, told.side)
        self._pixelwise = told.model.startswith(("deeplabv3", "fcn", "lraspp"))
        self._length = told.batch * told.steps * told.accumulate

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        labels = self._shape[1:] if self._pixelwise else ()
        return (
            torch.rand(self._shape, generator=generator),
            torch.randint(0, 10, labels, generator=generator),
        )


def batches(told: argparse.Namespace, layout: torch.memory_format) -> Iterator[dict[str, Any]]:
    """Batches on the GPU."""
    loader = torch.utils.data.DataLoader(
        Images(told), told.batch, num_workers=told.workers, pin_memory=told.workers > 0
    )
    for images, labels in loader:
        yield {
            "images": images.to("cuda", non_blocking=True, memory_format=layout),
            "labels": labels.to("cuda", non_blocking=True),
        }


def make(name: str) -> torch.nn.Module:
    """A model with random weights."""
    if name.startswith("timm:"):
        import timm

        made: torch.nn.Module = timm.create_model(name.removeprefix("timm:"), pretrained=False)
        return made
    backbone = {"weights_backbone": None} if name.startswith(("deeplabv3", "fcn", "lraspp")) else {}
    found: torch.nn.Module = torchvision.models.get_model(name, weights=None, **backbone)
    return found


def body(told: argparse.Namespace, stages: measuring.Stages) -> None:
    """The program."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = told.benchmark
    layout = torch.channels_last if told.channels_last else torch.preserve_format
    model = make(told.model).to("cuda", memory_format=layout)
    stages.reach("model")
    criterion = torch.nn.CrossEntropyLoss()

    def loss(called: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        outputs = called(batch["images"])
        if isinstance(outputs, dict):  # of a segmentation
            outputs = outputs["out"]
        value: torch.Tensor = criterion(outputs, batch["labels"])
        return value

    if not told.evaluate:
        return measuring.train(told, stages, model, batches(told, layout), loss)
    model.eval()
    called = torch.compile(model) if told.compile else model
    with torch.no_grad(), measuring.autocast(told):
        for step, batch in enumerate(batches(told, layout)):
            loss(called, batch)
            stages.reach(f"step {step + 1}")


def main() -> None:
    """The command line."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--side", type=int, default=224, help="pixels")
    parser.add_argument("--frames", type=int, default=0, help="of a video")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--benchmark", action="store_true", help="torch.backends.cudnn.benchmark")
    parser.add_argument("--evaluate", action="store_true", help="without a backward pass")
    parser.add_argument("--workers", type=int, default=0, help="of the DataLoader")
    measuring.measure(parser.parse_args(), body)


if __name__ == "__main__":
    main()
