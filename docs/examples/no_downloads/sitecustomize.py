# SPDX-License-Identifier: Apache-2.0
"""Takes the place of torchvision's downloads, for programs whose memory is of interest.

    PYTHONPATH=docs/examples/no_downloads allocbench fit --device null:a100-40gb -- python train.py

CIFAR-10 has black images of its size, and vision transformers have random weights. Python imports a
module of this name when it starts.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import Any

MODELS = ("vit_b_16", "vit_l_16", "vit_l_32")


class Finder:
    """Finds torchvision's modules, and changes them once they have been imported."""

    searching = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module that is changed, with another loader."""
        if self.searching or name not in CHANGES:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            CHANGES[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def without_images(datasets: Any) -> None:
    """Replace CIFAR-10."""
    import torch
    from PIL import Image

    class CIFAR10(torch.utils.data.Dataset[Any]):
        def __init__(
            self, root: str = "", train: bool = True, transform: Any = None, **_options: Any
        ) -> None:
            self.count, self.transform = (50_000 if train else 10_000), transform

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return self.transform(Image.new("RGB", (32, 32))), index % 10

    datasets.CIFAR10 = CIFAR10


def without_weights(models: Any) -> None:
    """Have models ignore the weights that they are asked to load."""

    def random(build: Any) -> Any:
        return lambda weights=None, **options: build(**options)

    for name in MODELS:
        setattr(models, name, random(getattr(models, name)))


CHANGES = {"torchvision.datasets": without_images, "torchvision.models": without_weights}
sys.meta_path.insert(0, Finder())
