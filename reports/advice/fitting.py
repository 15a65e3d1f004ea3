# SPDX-License-Identifier: Apache-2.0
"""What a program needs, in sentences over rows of `fit`."""

from collections.abc import Mapping
from typing import Any

from allocbench.base import units
from allocbench.reports.advice.coverage import needs

Row = Mapping[str, Any]


def answer(name: str, own: Row, setting: tuple[str, Row] | None) -> str:
    """What the user's allocator needs, and what it needs with a setting, if that is less.

    own: the row of the user's allocator. setting: its name and row.
    """
    words = f"{name} {_need(own)} through {own['allocator']}{_card(own)}."
    if setting is None:
        return words
    name, row = setting
    if row["min_capacity"] is None or row["min_capacity"] >= (own["min_capacity"] or 1 << 62):
        return f"{words} {name} does not need less."
    same = own["card"] is not None and own["card"] == row["card"]
    card = "; the smallest card is the same" if same else _card(row)
    return f"{words} With {name}, it {_need(row)}{card}."


def fails_above(row: Row) -> str:
    """That an allocator also fails on a device larger than the smallest that is enough."""
    more = units.size(row["fails_above"] - row["min_capacity"])
    return (
        f"{row['allocator']} also fails on a device that is {more} larger than this smallest one."
    )


def _need(row: Row) -> str:
    least = row["min_capacity"]
    return "fits no device" if least is None else needs(least, bool(row["coverage"]))


def _card(row: Row) -> str:
    if row["min_capacity"] is None:
        return ""
    smallest = "smallest card that can be enough" if row["coverage"] else "smallest card"
    return f": the {smallest} is the {row['card']}" if row["card"] else ": no card has so much"
