# SPDX-License-Identifier: Apache-2.0
"""Networks by the names of the table, the images that they accept, and their loss."""

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

AUXILIARY_WEIGHT = 0.3
"""Of the loss of a classifier in the middle of a network: Szegedy et al., arXiv 1409.4842."""
_WITHOUT_SIZE = {"mnasnet": "mnasnet1.0", "maxvit": "maxvitt"}
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_TUNED = re.compile(r"(-(it|instruct|chat|hf|\d{4}))+$")
"""The end of a name that says how a language model was tuned, and when."""
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[^a-z0-9]+(?=\d)")


def network(name: str, known: Collection[str]) -> str:
    """The name among `known` that a table writes as `name`; raises SystemExit if it is unknown.

    Case and separators may differ, but a separator between digits counts: "RegNetX1.6GF" is
    regnet_x_1_6gf, and "RegNetX16GF" is regnet_x_16gf.
    """
    wanted = _plain(name).replace("mobenet", "mobilenet")  # how the published rows write it
    wanted = _WITHOUT_SIZE.get(wanted, wanted)
    found = {_plain(candidate): candidate for candidate in known}
    if wanted in found:
        return found[wanted]
    loose = [candidate for candidate in known if _bare(candidate) == _bare(wanted)]
    if len(loose) == 1:
        return loose[0]
    close = loose or [found[plain] for plain in difflib.get_close_matches(wanted, found)]
    hint = f"; close names: {', '.join(close)}" if close else ""
    raise SystemExit(
        f"model {name} is not one of torchvision's networks that classify images{hint}"
    )


def language_model(name: str, known: Collection[str]) -> str | None:
    """The name among `known` of a model with the shape of `name`; None if there is none.

    The owner may be missing or differ, and a tuned model has the shape of its base: gemma-2-2b-it
    is google/gemma-2-2b.
    """
    own = {candidate.rpartition("/")[2].lower(): candidate for candidate in known}
    bases = {_TUNED.sub("", last): candidate for last, candidate in own.items()}
    last = name.rpartition("/")[2].lower()
    return name if name in known else own.get(last) or bases.get(_TUNED.sub("", last))


def _plain(name: str) -> str:
    """Lower case, with a dot between digits and no other separator."""
    return re.sub(r"[^a-z0-9.]+", "", _BETWEEN_DIGITS.sub(".", name.lower()))


def _bare(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())


def side(model: torch.nn.Module, usual: int, others: Iterable[int]) -> int:
    """The side of the images in pixels: the usual one, or the first of others that `model` accepts.

    Raises SystemExit if it accepts none of them.
    """
    tried = [usual, *others]
    for pixels in tried:
        if _accepts(model, pixels):
            return pixels
    raise SystemExit(f"the model accepts no images of {', '.join(map(str, tried))} pixels")


def _accepts(model: torch.nn.Module, pixels: int) -> bool:
    """Whether two images of a size pass through `model`; tensors have shapes only, and no data."""
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    shapes = {name: tensor.detach().to("meta") for name, tensor in state.items()}
    images = torch.empty(2, 3, pixels, pixels, device="meta")
    try:
        with torch.no_grad():
            torch.func.functional_call(model, shapes, (images,))
    except (AssertionError, RuntimeError, ValueError):
        return False
    return True


def loss_of(
    outputs: Any, labels: torch.Tensor, criterion: Callable[[Any, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """The loss of a network's outputs, with those of its auxiliary classifiers if it has any."""
    if isinstance(outputs, torch.Tensor):
        return criterion(outputs, labels)
    last, *auxiliary = (part for part in outputs if part is not None)
    return criterion(last, labels) + AUXILIARY_WEIGHT * sum(
        criterion(part, labels) for part in auxiliary
    )
