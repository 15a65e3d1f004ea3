# SPDX-License-Identifier: Apache-2.0
"""What changed between two traces or two allocators, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from allocbench.base import units
from allocbench.base.text import one_line


def signed(number: int) -> str:
    """Bytes with their sign: +1.00 GiB."""
    return f"{'+' if number > 0 else '-' if number < 0 else ''}{units.size(abs(number))}"


def headline(names: tuple[str, str], peaks: tuple[int, int, int]) -> str:
    """The difference of the peaks, and what of it is due to the program and to the allocator.

    peaks: reserved bytes of the old side, of the new requests under the old rules, of the new side.
    """
    (old, new), (was, between, now) = names, peaks
    if was == now:
        words = f"{old} and {new} both reserve {units.size(was)} at their peaks."
    else:
        more = "more" if now > was else "less"
        words = (
            f"{new} reserves {units.size(now)} at its peak, {units.size(abs(now - was))} {more}"
            f" than {old} ({units.size(was)})."
        )
    if between not in (was, now):
        words += (
            f" The program's requests change it by {signed(between - was)}, the allocator's rules"
            f" by {signed(now - between)}."
        )
    return words


def most(part: Mapping[str, Any], of: str = "") -> str:
    """The largest part. of: of what, if not of the peak."""
    return f"The largest part{of} is {signed(part['change'])}: {what(part)}."


def what(part: Mapping[str, Any]) -> str:
    """What a part consists of: "activations: train.py:12 forward in h.*.mlp (larger)"."""
    words = "bytes that rounding adds" if part["what"] == "rounding" else str(part["what"])
    if part["what"] == "free":
        words = "free bytes in segments"
    if part["what"] == "free in small segments":
        words = "free bytes in segments of 2 MiB"
    if part["what"] == "blocks":
        kind, place, module = (one_line(str(part[name])) for name in ("kind", "place", "module"))
        words = kind or "blocks"
        words += f": {place}" if place else ""
        words += f" in {module}" if module else ""
        caller = one_line(str(part["caller"]))
        words += f" ({part['how']}{f', called by {caller}' if caller else ''})"
    return f"{words}, by the allocator's rules" if part["cause"] == "allocator" else words


def first_change(
    names: tuple[str, str], events: tuple[int | None, int | None], step: int, words: tuple[str, str]
) -> str:
    """Where the requests begin to differ."""
    did = [
        f"{name} {does}{'' if event is None else f' (event {event:,})'}"
        for name, event, does in zip(names, events, words, strict=True)
    ]
    since = f"after {units.count(step, 'step')}" if step else "from the start"
    return f"The requests differ {since}: {did[0]}, {did[1]}."


def agreement(names: Sequence[str], matched: int, old: int, new: int) -> str:
    """How far the requests agree in order."""
    shares = [units.percent(matched / count) if count else "100.0%" for count in (old, new)]
    return (
        f"In order, {matched:,} allocs and frees agree: {shares[0]} of {names[0]}, {shares[1]} of"
        f" {names[1]}."
    )
