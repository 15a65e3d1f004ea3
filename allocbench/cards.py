# SPDX-License-Identifier: Apache-2.0
"""Common cards and how much memory a program has on each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Card:
    """A graphics card. `usable`: bytes that are left when something is set aside for CUDA."""

    name: str
    total: int
    usable: int


@cache
def cards() -> tuple[Card, ...]:
    """The cards of `cards.json`, the smallest first."""
    table = json.loads(files("allocbench").joinpath("cards.json").read_text(encoding="utf-8"))
    aside = table["set_aside_mib"] << 20
    made = [
        Card(one["name"], one["total_mib"] << 20, (one["total_mib"] << 20) - aside)
        for one in table["cards"]
    ]
    return tuple(sorted(made, key=lambda card: card.usable))


def set_aside() -> int:
    """Bytes of a card that are not counted as usable."""
    return cards()[0].total - cards()[0].usable
