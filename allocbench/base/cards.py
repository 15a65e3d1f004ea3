# SPDX-License-Identifier: Apache-2.0
"""Common cards: how much memory each has, and how much of it a program can use.

The numbers and their sources are in `cards.json`. A card offers a program the bytes that the driver
reports, minus what the process's CUDA context uses.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from allocbench.base import units


@dataclass(frozen=True)
class Compute:
    """The properties of a card that a program sees, in addition to its memory. Bytes.

    product: the name that the driver reports. capability: ten times the compute capability. l2: of
    the cache. clock_mhz: the most that the driver reports. memory_clock_mhz: half of the data rate.
    shared_per_block: the most shared memory that a block can opt in to.
    """

    product: str
    capability: int
    multiprocessors: int
    l2: int
    bus_bits: int
    clock_mhz: int
    memory_clock_mhz: int
    shared_per_multiprocessor: int
    shared_per_block: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int

    @property
    def threads(self) -> int:
        """How many threads can reside on the card."""
        return self.multiprocessors * self.threads_per_multiprocessor


@dataclass(frozen=True)
class Card:
    """A graphics card. Bytes.

    nominal: what its name says. usable: what the driver reports. estimated: whether `usable` was
    derived from `nominal`, because no report was found. context: what one process's CUDA context
    uses; an estimate. compute: None for cards not made by NVIDIA. nvlink: whether other cards of a
    machine are connected by NVLink.
    """

    name: str
    nominal: int
    usable: int
    estimated: bool
    context: int
    compute: Compute | None = None
    nvlink: bool = False

    def nccl(self, ranks: int) -> int:
        """Estimated bytes of one NCCL communicator on this card; 0 for one rank."""
        buffers, peers = _table()["nccl"], min(2, ranks - 1)
        if peers < 1 or self.compute is None:
            return 0
        if self.nvlink:
            return int(buffers["nvlink"]["two" if ranks == 2 else "more"])
        return int(buffers["channels"] * peers * buffers["connection"])

    @property
    def free(self) -> int:
        """Bytes that a program can allocate."""
        return self.usable - self.context

    @property
    def slug(self) -> str:
        """The name in lower case with hyphens, for specs."""
        return self.name.lower().replace(" ", "-")

    @property
    def device(self) -> str:
        """The spec of a simulated device of this size."""
        return f"sim:{self.usable},context={self.context}"


def read(table: Mapping[str, Any]) -> tuple[Card, ...]:
    """The cards of a table as in `cards.json`, smallest first."""
    share = table["estimated_share"]
    cards_read = [
        Card(
            row["name"],
            row["nominal"],
            int(row["nominal"] * share) if row["usable"] is None else row["usable"],
            row["usable"] is None,
            _context(compute, table["context"]),
            compute,
            row.get("nvlink", False),
        )
        for row in table["cards"]
        for compute in [_compute(row.get("compute"), table)]
    ]
    return tuple(sorted(cards_read, key=lambda card: card.usable))


def _compute(row: Mapping[str, Any] | None, table: Mapping[str, Any]) -> Compute | None:
    return Compute(**row, **table["capabilities"][str(row["capability"])]) if row else None


def _context(compute: Compute | None, rule: Mapping[str, Any]) -> int:
    if compute is None:
        return int(rule["bytes"])
    return int(rule["fixed"] + rule["per_thread"] * compute.threads)


@cache
def cards() -> tuple[Card, ...]:
    """All cards, the smallest first."""
    return read(_table())


def context(name: str | None) -> int | None:
    """Estimated bytes that one process's CUDA context uses on the named card.

    None for an unknown name.
    """
    return next((card.context for card in cards() if card.name == name), None)


def notes(device: str = "", traced_on: str = "", everything: bool = True) -> list[str]:
    """How much of a card, or of a device that is not a card, a program can use, in sentences.

    traced_on: the device of the trace. A trace of a CPU is only a guess about a GPU; the text says
    so. everything: False for that alone.
    """
    guess = [_GUESS] if traced_on.startswith("cpu") else []
    if not everything:
        return guess
    contexts = [card.context for card in cards() if card.compute]
    words = (
        "The size of a card is what its driver reports, minus an estimated"
        f" {min(contexts) >> 20} to {max(contexts) >> 20} MiB for the CUDA context."
    )
    if device.startswith("sim:") and "context=" not in device and not of_device(device):
        words += f" Nothing is subtracted from {label(device)}."
    return [words, *guess]


_GUESS = (
    "The trace shows CPU memory. On a GPU, the same program allocates differently, so the cards are"
    " a guess."
)


def of_device(device: str) -> tuple[Card, str] | None:
    """The card whose simulated device this is, and further options of the spec; None if no card."""
    for card in cards():
        if device == card.device or device.startswith(f"{card.device},"):
            return card, device.removeprefix(card.device).removeprefix(",")
    return None


def label(device: str) -> str:
    """The name of a device in sentences: the card's name if its spec is that of a card.

    Bytes of other simulated devices are in units: "sim:8.00 GiB (context 198 MiB)".
    """
    if found := of_device(device):
        card, options = found
        return f"{card.name} ({options})" if options else card.name
    match = re.fullmatch(r"sim:(\d+)(?:,context=(\d+))?", device)
    if match is None:
        return device
    capacity, *context = (units.size(int(number)) for number in match.groups() if number)
    return f"sim:{capacity}" + "".join(f" (context {size})" for size in context)


def find(name: str) -> list[Card]:
    """The cards that match a name: "RTX 4090 24GB", "rtx-4090", "l4" or "H100" (two: see `meant`).

    Whole words win over beginnings of words: "l4" is not an L40S. The name that the driver reports
    works as well: "NVIDIA-GeForce-RTX-4090".
    """
    wanted = _plain(name)
    whole = [card for card in cards() if wanted in _beginnings(card.name)]
    exact = [card for card in whole if _plain(card.name) == wanted]
    exact = exact or [
        card for card in cards() if card.compute and _plain(card.compute.product) == wanted
    ]
    begun = [card for card in cards() if wanted and _plain(card.name).startswith(wanted)]
    return exact or whole or begun


def meant(matching: Sequence[Card]) -> Card | None:
    """The card to use for a name that matches some cards.

    If all have the same size, it is the one with the most multiprocessors: "h100" is the H100 SXM.
    If there is no card, or the sizes differ, it is None.
    """
    if len({card.nominal for card in matching}) != 1:
        return None
    return max(matching, key=lambda card: card.compute.multiprocessors if card.compute else 0)


def suggestion(name: str, known: Sequence[Card]) -> str:
    """The cards whose names are most like one that no card has; else all of them.

    A name is compared with the beginning of each slug up to a dash: h100, h100-sxm, h100-sxm-80gb.
    """
    slugs, begins = [card.slug for card in known], dict[str, str]()
    for slug in slugs:
        for end in (place for place, letter in enumerate(slug + "-") if letter == "-"):
            if any(letter.isdigit() for letter in slug[:end]):
                begins.setdefault(slug[:end], slug)
    near = dict.fromkeys(begins[text] for text in get_close_matches(name.lower(), begins))
    return f"nearest: {', '.join(near)}" if near else f"these are: {', '.join(slugs)}"


def _beginnings(name: str) -> set[str]:
    """The plain form of a name's first word, of its first two words, and so on."""
    words = name.split()
    return {_plain(" ".join(words[: n + 1])) for n in range(len(words))}


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@cache
def _table() -> dict[str, Any]:
    text = files("allocbench.base").joinpath("cards.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
