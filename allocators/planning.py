# SPDX-License-Identifier: Apache-2.0
"""Plans: an offset for every block or tensor, made with all lifetimes known, in C++ without GIL."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allocbench.allocators import _core
from allocbench.allocators._core import Graph, GraphPlan, SpecError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

FOREVER = 2**32 - 1
"""The `last` of a block that is never freed."""

TIME_LIMIT = 10.0
"""Seconds."""

Report = Callable[[float, int, int], None]
"""Called about ten times a second with seconds, height and lower bound; may raise to stop."""


@dataclass(frozen=True, eq=False)
class PlanResult:
    """Offsets of n blocks, and how good they are. Sizes in bytes.

    offsets: uint64 (n,), in the order in which the blocks were given.
    height: from offset 0 to the highest end.
    max_load: the largest sum of the sizes alive at one instant.
    lower_bound: no plan is lower; at least `max_load`.
    seconds: that the planner took.
    """

    planner: str
    offsets: NDArray[np.uint64]
    height: int
    max_load: int
    lower_bound: int
    seconds: float

    @property
    def optimal(self) -> bool:
        """Whether it is proven that no plan is lower."""
        return self.height == self.lower_bound


def planners() -> list[str]:
    """The names of all planners, sorted."""
    return [info.name for info in _core.planners()]


def plan(
    sizes: ArrayLike,
    first: ArrayLike,
    last: ArrayLike,
    *,
    planner: str = "exact",
    alignment: int = 1,
    time_limit: float = TIME_LIMIT,
    report: Report | None = None,
) -> PlanResult:
    """Give every block an offset such that blocks alive together lie apart.

    Block i has `sizes[i]` bytes and is alive from instant `first[i]` up to but not including
    `last[i]` (32 bits each; FOREVER: never freed). Offsets are multiples of `alignment` bytes, a
    power of two. `time_limit` in seconds and `report` count for the exact planner, which ends early
    once its plan is proven lowest. Raises SpecError for a planner that does not exist, arrays of
    different lengths, and a block without bytes or time.
    """
    blocks = (
        _integers("sizes", sizes, "uint64"),
        _integers("first", first, "uint32"),
        _integers("last", last, "uint32"),
    )
    began = time.perf_counter()
    found = _core.plan(planner, *blocks, alignment, _seconds(time_limit), report)
    return PlanResult(planner, *found, seconds=time.perf_counter() - began)


def plan_graph(
    graph: Graph,
    *,
    planner: str = "greedy_by_size",
    preserve_inputs: bool = True,
    preserve_intermediates: bool = False,
    alignment: int = 64,
    time_limit: float = TIME_LIMIT,
    report: Report | None = None,
) -> GraphPlan:
    """Give every tensor an offset in one of two arenas, as TensorFlow Lite does today.

    With another planner than greedy_by_size, lifetimes and outputs that take the memory of an input
    are still TensorFlow Lite's. Raises SpecError as `plan` does, and for a tensor that does not
    exist.
    """
    options = (preserve_inputs, preserve_intermediates, alignment, _seconds(time_limit))
    return _core.plan_graph(graph, planner, *options, report)


def _integers(name: str, values: ArrayLike, dtype: str) -> NDArray[Any]:
    import numpy as np

    given = np.asarray(values)
    limits = np.iinfo(dtype)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise SpecError(f"{name}: not a sequence of whole numbers")
    if given.size and not (limits.min <= int(given.min()) and int(given.max()) <= limits.max):
        raise SpecError(f"{name}: a number is not from {limits.min} to {limits.max}")
    return np.ascontiguousarray(given, dtype)


def _seconds(time_limit: float) -> float:
    if not time_limit > 0:
        raise SpecError(f"time limit {time_limit} must be above 0 seconds")
    return time_limit
