# SPDX-License-Identifier: Apache-2.0
"""Needs in words, for traces that may be a part of their program."""

from allocbench.base import units


def needs(size: int, bound: bool) -> str:
    """The verb and the number: "needs 3.00 GiB". bound: whether the program may need more."""
    return f"needs {'at least ' if bound else ''}{units.size(size)}"


def hidden(held: int) -> str:
    """Why the need is not known where more was held before a recording than a device has."""
    return (
        f"{units.size(held)} were reserved before the recording begins, and how much of them the"
        " program used is not recorded"
    )
