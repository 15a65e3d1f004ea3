# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 trained with SGD and bfloat16 autocast; the last batch of each epoch is short.

Interesting for an allocator because all steps of an epoch but the last are identical: a cache
filled by the first step serves all later ones exactly, until the short batch requests sizes that
fit nothing, and the next epoch requests the old ones again. Activations halve from stage to stage,
from blocks of 400 MB to some of 200 KB, with a few KiB of batch statistics between any two.
Validation, in larger batches and without a graph, frees each activation at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workshop.models.program import Mark, ModelProgram


@dataclass(frozen=True)
class Config:
    """The network and its training; image counts are per epoch."""

    blocks: tuple[int, int, int, int]
    width: int
    classes: int
    side: int
    batch: int
    images: int
    validation_batch: int
    validation_images: int
    epochs: int = 2
    learning_rate: float = 0.1


class Normalised(nn.Module):
    """A convolution without bias, then batch normalisation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) -> (batch, outputs, ...), both divided by the stride."""
        output: Tensor = self.norm(self.convolution(x))
        return output


class Bottleneck(nn.Module):
    """Three convolutions with a residual connection: narrow, 3x3 (with the stride), wide."""

    def __init__(self, inputs: int, narrow: int, stride: int) -> None:
        super().__init__()
        self.first = Normalised(inputs, narrow, 1)
        self.second = Normalised(narrow, narrow, 3, stride)
        self.third = Normalised(narrow, 4 * narrow, 1)
        same = stride == 1 and inputs == 4 * narrow
        self.shortcut = nn.Identity() if same else Normalised(inputs, 4 * narrow, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, height, width) -> (batch, 4 * narrow, ...)."""
        out = functional.relu(self.first(x), inplace=True)
        out = functional.relu(self.second(out), inplace=True)
        out = self.third(out)
        out += self.shortcut(x)
        return functional.relu(out, inplace=True)


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks that double the width and halve the size, a classifier."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.stem = Normalised(3, config.width, 7, 2)
        inputs, stages = config.width, list[nn.Module]()
        for stage, count in enumerate(config.blocks):
            narrow = config.width << stage
            for block in range(count):
                stages.append(Bottleneck(inputs, narrow, 2 if stage and not block else 1))
                inputs = 4 * narrow
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(inputs, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, 3, side, side) -> logits (batch, classes)."""
        x = functional.relu(self.stem(images), inplace=True)
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        x = self.stages(x).mean((2, 3))
        logits: Tensor = self.classifier(x)
        return logits


def batches(images: int, size: int) -> list[int]:
    """Batch sizes of an epoch: full batches, then the remainder."""
    return [min(size, images - start) for start in range(0, images, size)]


def draw(config: Config, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Random images in channels-last format, and their classes."""
    images = torch.randint(256, (count, 3, config.side, config.side), device=device)
    images = images.to(torch.uint8).to(memory_format=torch.channels_last)
    return images.float().div_(255), torch.randint(config.classes, (count,), device=device)


def train(config: Config, device: str, mark: Mark) -> None:
    """Train for `config.epochs`, with validation after each."""
    mark("init")
    with torch.device(device):
        model = ResNet(config)
    for weight in model.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), config.learning_rate, 0.9, weight_decay=1e-4, foreach=True
    )
    for _ in range(config.epochs):
        for count in batches(config.images, config.batch):
            mark("step")
            mark("forward")
            images, classes = draw(config, count, device)
            with torch.autocast(device, torch.bfloat16):
                loss = functional.cross_entropy(model(images), classes, label_smoothing=0.1)
            mark("backward")
            torch.autograd.backward(loss)
            mark("optimizer")
            optimizer.step()
            optimizer.zero_grad()
        mark("validation")
        model.eval()
        correct = torch.zeros((), dtype=torch.int64, device=device)
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            for count in batches(config.validation_images, config.validation_batch):
                images, classes = draw(config, count, device)
                correct += (model(images).argmax(1) == classes).sum()
        model.train()
    mark("teardown")


PROGRAM = ModelProgram(
    run=train,
    full=Config(
        blocks=(3, 4, 6, 3),
        width=64,
        classes=1000,
        side=224,
        batch=256,
        images=900,
        validation_batch=512,
        validation_images=700,
    ),
    tiny=Config(
        blocks=(1, 1, 1, 1),
        width=4,
        classes=10,
        side=32,
        batch=4,
        images=10,
        validation_batch=8,
        validation_images=9,
    ),
    model="ResNet-50, batches of 256 images of 224x224 and a short last one, bfloat16 autocast,"
    " channels last, SGD with momentum",
    seed=0,
)

if __name__ == "__main__":
    PROGRAM.main()
