# SPDX-License-Identifier: Apache-2.0
"""The training programs of `make truth`: which model a row names, and what trains it."""

import json
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from benchmarks.workshop.truth.programs.networks import (
    AUXILIARY_WEIGHT,
    language_model,
    loss_of,
    network,
    side,
)

KNOWN = (
    *("convnext_tiny", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3"),
    *("maxvit_t", "mnasnet0_5", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large"),
    *("mobilenet_v3_small", "regnet_x_16gf", "regnet_x_1_6gf", "regnet_x_400mf", "resnet152"),
    *("shufflenet_v2_x1_0", "squeezenet1_1", "vgg16", "vgg16_bn", "vit_b_16", "wide_resnet50_2"),
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("VGG16-BN", "vgg16_bn"),
        ("MobeNetV3Small", "mobilenet_v3_small"),
        ("MnasNet", "mnasnet1_0"),
        ("MnasNet0.5", "mnasnet0_5"),
        ("RegNetX400MF", "regnet_x_400mf"),
        ("RegNetX1.6GF", "regnet_x_1_6gf"),
        ("RegNet_X_1_6GF", "regnet_x_1_6gf"),
        ("EfficientNetV2-S", "efficientnet_v2_s"),
        ("Inception v3", "inception_v3"),
        ("MaxViT", "maxvit_t"),
        ("ShuffleNetV2x10", "shufflenet_v2_x1_0"),
        ("SqueezeNet1.1", "squeezenet1_1"),
        ("ViT-B/16", "vit_b_16"),
        ("WideResNet50-2", "wide_resnet50_2"),
        *((name, name) for name in KNOWN),
    ],
)
def test_a_network_is_found_by_the_name_of_a_table(name: str, meant: str) -> None:
    assert network(name, KNOWN) == meant


@pytest.mark.parametrize(
    ("name", "hint"),
    [("RegNetX15GF", "; close names: regnet_x_16gf"), ("NoSuchNet", None), ("fcn_resnet50", None)],
)
def test_a_network_that_is_not_there_is_named(name: str, hint: str | None) -> None:
    with pytest.raises(SystemExit) as error:
        network(name, KNOWN)
    message = str(error.value)
    assert message.startswith(f"model {name} is not one of torchvision's networks that classify")
    assert hint is None or hint in message


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("google/gemma-2-2b-it", "google/gemma-2-2b"),
        ("GEMMA-2-2B-IT", "google/gemma-2-2b"),
        ("another/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B"),
        ("Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"),
        ("Phi-3-mini-4k", "microsoft/Phi-3-mini-4k-instruct"),
        ("gpt2-xxl", None),
        ("bart", None),
    ],
)
def test_a_language_model_is_found_by_another_owner_or_as_tuned(
    name: str, meant: str | None
) -> None:
    path = Path("benchmarks/workshop/truth/programs/models.json")
    known = json.loads((Path(__file__).parents[2] / path).read_text(encoding="utf-8"))
    assert language_model(name, known) == meant
    assert all(language_model(one, known) == one for one in known)


class Tiles(torch.nn.Module):
    """Cuts an image into tiles of 7 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(7))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        size = images.shape[-1]
        return images.reshape(2, 3, size, size // 7, 7) * self.weight


def test_images_have_the_usual_size_or_that_of_the_published_weights() -> None:
    assert side(Tiles(), 84, [224]) == 84
    assert side(Tiles(), 86, [225, 224, 231]) == 224
    with pytest.raises(SystemExit, match="the model accepts no images of 86, 225 pixels"):
        side(Tiles(), 86, [225])


def test_trying_a_size_leaves_the_model_as_it_was() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert side(model, 86, []) == 86
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_auxiliary_classifiers_are_trained_too() -> None:
    Outputs = namedtuple("Outputs", ("logits", "aux_2", "aux_1"))
    criterion = torch.nn.CrossEntropyLoss()
    labels = torch.zeros(4, dtype=torch.long)
    parts = [torch.rand(4, 10, requires_grad=True) for _ in range(3)]
    expected = sum(criterion(part, labels) for part in parts[1:]) * AUXILIARY_WEIGHT
    loss = loss_of(Outputs(*parts), labels, criterion)
    assert loss.item() == pytest.approx((criterion(parts[0], labels) + expected).item())
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(part.grad is not None for part in parts)
    alone = loss_of(parts[0], labels, criterion)
    assert loss_of(Outputs(parts[0], None, None), labels, criterion).item() == alone.item()


def test_each_configuration_names_its_kind_of_model() -> None:
    path = Path("benchmarks/workshop/truth/programs/models.json")
    table = json.loads((Path(__file__).parents[2] / path).read_text(encoding="utf-8"))
    assert all("model_type" in values for values in table.values())
    own_names = {name.rpartition("/")[2].lower(): values for name, values in table.items()}
    for name, values in table.items():  # whichever owner a row names, the model is the same
        assert own_names[name.rpartition("/")[2].lower()] == values
