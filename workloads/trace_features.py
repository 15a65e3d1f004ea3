# SPDX-License-Identifier: Apache-2.0
"""Features of a trace: numbers that show what makes it hard or easy for an allocator.

In the formulas of `Features`, n is the number of events, B(t) the number of live blocks and L(t)
the live requested bytes after event t, t = 0..n-1. The lifetime of a block is the number of events
from its alloc to its free, or to the end of the trace. S_k is the multiset of the sizes requested
in step k, k = 1..K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocbench.workloads.trace import ALLOC, FREE, MARK, Trace, spans

NEAR_PEAK = 0.9
"""Fraction of the max load above which the load counts as near its peak."""


@dataclass(frozen=True)
class Features:
    """The features of a trace; None where a feature is undefined."""

    steps: int
    """K, the number of marks that begin a step."""
    streams: int
    """Number of distinct streams of the allocs and frees."""
    live_blocks_peak: int
    """max over t of B(t)."""
    live_blocks_mean: int
    """mean over t of B(t), rounded."""
    largest_request: int | None
    """Largest requested size, bytes."""
    distinct_sizes: int
    """Number of distinct requested sizes."""
    size_entropy: float | None
    """-sum over the distinct sizes s of p(s) log2 p(s), where p(s) is the fraction of allocs with
    size s, in bits: 0 if all sizes are equal, log2 of the number of allocs if all differ."""
    lifetime_p50: int | None
    """Median lifetime, events: the smallest that at least half of the blocks do not exceed."""
    lifetime_p90: int | None
    """90th percentile of the lifetimes, events."""
    lifetime_p99: int | None
    """99th percentile of the lifetimes, events."""
    repeat_rate: float | None
    """sum of |S_k intersected with S_(k-1)| / sum of max(|S_k|, |S_(k-1)|), both over k = 2..K:
    1 if every step requests the same sizes as the previous one, in any order; None with fewer than
    two steps, or if no step allocates."""
    load_mean: float | None
    """mean over t of L(t) / max load."""
    peak_width: float | None
    """Fraction of the t with L(t) >= 0.9 max load: small for a sharp peak."""
    peak_position: float | None
    """First t at which L(t) is the max load, / n: 0 at the start of the trace, 1 at its end."""


def features(trace: Trace) -> Features:
    """The features of a valid trace; takes about half a second for a million events."""
    allocs, ends = spans(trace.op, trace.block)
    sizes, of_alloc, counts = np.unique(trace.size[allocs], return_inverse=True, return_counts=True)
    shares = counts / max(1, len(allocs))
    live = np.cumsum((trace.op == ALLOC).astype(np.int64) - (trace.op == FREE))
    load = trace.load
    max_load = int(load.max(initial=0))
    lifetimes = ends - allocs
    some = len(allocs) > 0

    def lifetime(quantile: float) -> int | None:
        value = np.quantile(lifetimes, quantile, method="inverted_cdf") if some else None
        return None if value is None else int(value)

    return Features(
        steps=trace.steps,
        streams=len(np.unique(trace.stream[trace.op <= FREE])),
        live_blocks_peak=int(live.max(initial=0)),
        live_blocks_mean=round(float(live.mean())) if len(live) else 0,
        largest_request=int(sizes[-1]) if some else None,
        distinct_sizes=len(sizes),
        size_entropy=abs(float(shares @ np.log2(shares))) if some else None,
        lifetime_p50=lifetime(0.5),
        lifetime_p90=lifetime(0.9),
        lifetime_p99=lifetime(0.99),
        repeat_rate=_repeat_rate(trace, allocs, of_alloc),
        load_mean=float(load.mean() / max_load) if some else None,
        peak_width=float(np.mean(load >= NEAR_PEAK * max_load)) if some else None,
        peak_position=float(load.argmax() / len(load)) if some else None,
    )


def _repeat_rate(trace: Trace, allocs: NDArray[np.intp], size: NDArray[np.intp]) -> float | None:
    """The repeat rate; `size` has the number of the distinct size of each alloc."""
    begins = (trace.op == MARK) & (trace.block == trace.step_label)
    step = np.cumsum(begins)[allocs]
    inside = step > 0  # events before the first step belong to no step
    step, size, steps = step[inside], size[inside], int(begins.sum())
    allocs_per_step = np.bincount(step, minlength=steps + 1)[1:]
    most = int(np.maximum(allocs_per_step[1:], allocs_per_step[:-1]).sum())
    if not most:
        return None
    kinds, counts = np.unique(size * (steps + 2) + step, return_counts=True)
    follows = np.diff(kinds) == 1  # the same size one step later, since no step has number 0
    return float(np.minimum(counts[1:], counts[:-1])[follows].sum() / most)
