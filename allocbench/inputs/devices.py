# SPDX-License-Identifier: Apache-2.0
"""Devices by name: a card, a null GPU or a spec becomes the device that traces are replayed on."""

import re
from collections.abc import Sequence

from allocbench import allocators
from allocbench.allocators import DEVICE_SPECS, human_bytes
from allocbench.base.cards import Card, cards, find, label, meant, of_device, suggestion
from allocbench.base.spec import SpecSyntaxError, name_of, parse
from allocbench.errors import UsageError, errors_naming
from allocbench.null_gpu.device import KIND as NULL
from allocbench.null_gpu.device import has_own_option, is_null, read

_CARD = "card"
SMALLEST_DEVICE = 64 << 10  # bytes


def card_of(given: str, name: str) -> Card:
    """The card that a name means; otherwise raises UsageError.

    given: the option as it was written.
    """
    matching = find(name)
    if (card := meant(matching)) is not None:
        return card
    if matching:
        names = ", ".join(card.name for card in matching)
        raise UsageError(f"{given}: more than one card has that name; they are {names}")
    raise UsageError(f"{given}: no such card; {suggestion(name, cards())}")


def device_of(text: str) -> str:
    """The spec of a device; a card and `null:NAME` become a simulated device of their size.

    A card is `card:NAME` or its name alone. The options of a simulated device may follow it, except
    its capacity and context.

    Raises UsageError if no card, or more than one, has this name.
    """
    spec = _with_kind(text, _CARD)
    if is_null(spec):
        with errors_naming("--device"):
            null = read(spec)
        return f"sim:{null.memory},context={null.context}"
    if name_of(spec) != _CARD:
        if spec[:1].isdigit():
            raise UsageError(f"--device {spec}: write sim:{spec}")
        return spec
    name, options = _card_named(spec)
    card = card_of(f"--device {text}", name)
    return card.device + "".join(f",{option}={value}" for option, value in options.items())


def recorded_on(text: str | None) -> str | None:
    """The null GPU on which a program is recorded for a device, or None."""
    if text is None:
        return None
    text = _with_kind(text, _CARD)
    if is_null(text):
        return text
    if name_of(text) != _CARD:
        return None
    name, _ = _card_named(text)
    return f"null:{name}" if any(card.compute for card in find(name)) else None


def null_device_of(text: str) -> str:
    """The spec of a null GPU, of which the name of the card is enough."""
    return _with_kind(text, NULL)


def _with_kind(text: str, kind: str) -> str:
    """The text with a kind of device before it, if it begins with a name, such as a card's.

    With an option that only null GPUs have, it is one of these.
    """
    name = text.partition(",")[0]
    kinds = {spec.partition(":")[0] for spec in DEVICE_SPECS}
    is_name = name[:1].isalpha() and ":" not in name and name not in kinds
    if not is_name and not find(name):
        return text
    return f"{NULL if has_own_option(text) else kind}:{text}"


def _card_named(text: str) -> tuple[str, dict[str, str]]:
    """The name in `card:NAME`, and the options of the simulated device; raises UsageError."""
    try:
        options = parse(text, first="name").options
    except SpecSyntaxError as error:
        raise UsageError(f"--device {error}") from error
    if fixed := [option for option in options if option in ("capacity", "context")]:
        raise UsageError(f"--device {text}: {fixed[0]} follows from the card; write sim:80GiB")
    return options.pop("name", ""), options


def device_specs(given: Sequence[str]) -> list[str]:
    """The specs of devices; raises UsageError for one that cannot be made or is given twice."""
    specs = [device_of(one) for one in given]
    for device in specs:
        if specs.count(device) > 1:
            raise UsageError(f"--device: '{label(device)}' is given twice")
        with errors_naming("--device"):
            check_device(device)
    return specs


def check_device(device: str) -> None:
    """Raise UsageError for a device that is too small for any program."""
    capacity = allocators.make_device(device).capacity
    if capacity < SMALLEST_DEVICE:
        raise UsageError(
            f"--device {device}: a capacity of {human_bytes(capacity)} is too small: a device has "
            f"at least {human_bytes(SMALLEST_DEVICE)}"
        )


def bytes_of_card(device: str) -> int:
    """All bytes of the card that a device stands for, also those of its CUDA context.

    Raises SpecError for a device that cannot be made.
    """
    if found := of_device(device):
        return found[0].usable
    opened = allocators.make_device(re.sub(r",context=[^,]*", "", device))
    if isinstance(opened, allocators.CudaDevice):
        with opened:
            return int(opened.total)
    return opened.capacity
