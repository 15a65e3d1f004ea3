# SPDX-License-Identifier: Apache-2.0
"""Plans: an offset for every block or tensor when all lifetimes are known (in C++, no GIL)."""

from __future__ import annotations

import bisect
import itertools
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
"""Default time limit of the exact planner in seconds."""

Report = Callable[[float, int, int], None]
"""Called about ten times per second with seconds, height and lower bound; may raise to stop."""


@dataclass(frozen=True, eq=False)
class PlanResult:
    """Offsets of n blocks and their quality. Sizes are in bytes.

    offsets: uint64 (n,), in the order in which the blocks were given.
    height: from offset 0 to the highest end of a block.
    max_load: the largest sum of the sizes of blocks alive at the same instant.
    lower_bound: no plan can be lower; at least `max_load`.
    seconds: run time of the planner.
    """

    planner: str
    offsets: NDArray[np.uint64]
    height: int
    max_load: int
    lower_bound: int
    seconds: float

    @property
    def optimal(self) -> bool:
        """Whether no plan can be lower."""
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
    """Assign an offset to every block such that blocks alive at the same time do not overlap.

    Block i has `sizes[i]` bytes and is alive from instant `first[i]` up to but not including
    `last[i]` (32-bit numbers; FOREVER: never freed). Offsets are multiples of `alignment` bytes, a
    power of two. `time_limit` (seconds) and `report` apply only to the exact planner, which stops
    early once its plan is proven optimal. Raises SpecError for an unknown planner, for arrays of
    different lengths and for a block with no bytes or no lifetime.
    """
    blocks = (
        _integers("sizes", sizes, "uint64"),
        _integers("first", first, "uint32"),
        _integers("last", last, "uint32"),
    )
    began = time.perf_counter()
    result = _core.plan(planner, *blocks, alignment, _seconds(time_limit), report)
    return PlanResult(planner, *result, seconds=time.perf_counter() - began)


def judge(
    sizes: ArrayLike, first: ArrayLike, last: ArrayLike, offsets: ArrayLike, *, planner: str
) -> PlanResult:
    """The quality of the offsets (bytes) that another planner, called `planner`, gave to blocks.

    Raises SpecError as `plan` does, and for two blocks that overlap, with their positions.
    """
    import numpy as np

    bounds = plan(sizes, first, last, planner="no_reuse")
    places = _integers("offsets", offsets, "uint64")
    if len(places) != len(bounds.offsets):
        raise SpecError(f"offsets: {len(places)} for {len(bounds.offsets)} blocks")
    lengths = np.asarray(sizes).tolist()
    if overlap := _overlap(lengths, np.asarray(first), np.asarray(last), places.tolist()):
        raise SpecError("blocks {} and {} are alive at the same time and overlap".format(*overlap))
    ends = (place + length for place, length in zip(places.tolist(), lengths, strict=True))
    height = max(ends, default=0)
    return PlanResult(planner, places, height, bounds.max_load, bounds.lower_bound, 0.0)


def _overlap(
    sizes: list[int], first: NDArray[Any], last: NDArray[Any], offsets: list[int]
) -> tuple[int, int] | None:
    """The positions of two blocks that share a byte at some instant.

    The live blocks are kept in order of offset, in which only neighbours can overlap.
    """
    changes = sorted(
        (when, begins, block)
        for begins, column in ((False, last), (True, first))  # at one instant, ends come first
        for block, when in enumerate(column.tolist())
    )
    live: list[tuple[int, int]] = []  # offset, block
    for _, begins, block in changes:
        entry = (offsets[block], block)
        place = bisect.bisect_left(live, entry)
        if not begins:
            live.pop(place)
            continue
        live.insert(place, entry)
        for (start, below), (end, above) in itertools.pairwise(live[max(place - 1, 0) : place + 2]):
            if start + sizes[below] > end:
                return below, above
    return None


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
    """Assign every tensor an offset in one of two arenas, as current TensorFlow Lite does.

    With a planner other than greedy_by_size, lifetimes and in-place outputs still follow TensorFlow
    Lite. Raises SpecError as `plan` does, and for an unknown tensor.
    """
    options = (preserve_inputs, preserve_intermediates, alignment, _seconds(time_limit))
    return _core.plan_graph(graph, planner, *options, report)


def _integers(name: str, values: ArrayLike, dtype: str) -> NDArray[Any]:
    import numpy as np

    array = np.asarray(values)
    limits = np.iinfo(dtype)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise SpecError(f"{name}: must be a sequence of integers")
    if array.size and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
        raise SpecError(f"{name}: every value must be from {limits.min} to {limits.max}")
    return np.ascontiguousarray(array, dtype)


def _seconds(time_limit: float) -> float:
    if not time_limit > 0:
        raise SpecError(f"time limit {time_limit} must be more than 0 seconds")
    return time_limit
