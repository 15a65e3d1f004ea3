# SPDX-License-Identifier: Apache-2.0
"""The ids of PyTorch's private pools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_NUMBERS = 2


class PoolId(tuple[int, ...]):
    """The two numbers of a private pool, or none where a pool is not known.

    Its hash depends on random numbers of the process. Tuples of numbers can be chosen so that all
    have the same hash.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(repr(self))


DEFAULT_POOL = PoolId((0, 0))


def pool_id(numbers: Iterable[Any]) -> PoolId:
    """The id with these numbers; raises TypeError for anything else."""
    found = PoolId(numbers)
    if len(found) not in (0, _NUMBERS) or not all(type(number) is int for number in found):
        raise TypeError
    return found
