# SPDX-License-Identifier: Apache-2.0
"""Features of a trace: numbers that show what makes it hard or easy for an allocator.

In the formulas of `Features`, n is the number of events, B(t) the number of live blocks and L(t)
the live requested bytes after event t, t = 0..n-1. The lifetime of a block is the number of events
from its alloc to its free, or to the end of the trace. S_k is the multiset of the sizes requested
in step k, k = 1..K.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from allocbench.base.trace import EventArrays
from allocbench.workloads._native import HighLoad, TraceScan
from allocbench.workloads.trace import Trace

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
    """The features of a valid trace; may raise ValueError for another."""
    return features_of_parts(trace.parts, trace.step_label, len(trace))


def features_of_parts(
    parts: Callable[[], Iterable[EventArrays]], step_label: int, most_blocks: int
) -> Features:
    """The features of a valid trace whose parts, in order, come from each call of `parts`.

    It is called twice, because the second reading needs the max load. Memory: in proportion to the
    largest block number, which is below `most_blocks`, the distinct sizes and lifetimes, and the
    distinct sizes in two steps.
    """
    scan = TraceScan(step_label, most_blocks)
    for part in parts():
        scan.add(part.op, part.block, part.size, part.stream)
    scan.finish()
    sizes, of_size = scan.sizes()
    lifetimes, of_lifetime = scan.lifetimes()
    events, allocs, max_load = scan.events, int(of_size.sum()), scan.load_max
    if not allocs:
        return Features(scan.steps, scan.streams, 0, 0, None, 0, *[None] * 8)
    high = HighLoad(NEAR_PEAK * max_load, most_blocks)
    for part in parts():
        high.add(part.op, part.block, part.size, part.stream)
    shares = of_size / allocs
    up_to = np.cumsum(of_lifetime)

    def lifetime(quantile: float) -> int:
        return int(lifetimes[np.searchsorted(up_to, math.ceil(quantile * allocs))])

    return Features(
        steps=scan.steps,
        streams=scan.streams,
        live_blocks_peak=scan.live_peak,
        live_blocks_mean=round(scan.live_sum / events),
        largest_request=int(sizes[-1]),
        distinct_sizes=len(sizes),
        size_entropy=abs(float(shares @ np.log2(shares))),
        lifetime_p50=lifetime(0.5),
        lifetime_p90=lifetime(0.9),
        lifetime_p99=lifetime(0.99),
        repeat_rate=scan.repeated / scan.compared if scan.compared else None,
        load_mean=scan.load_sum / events / max_load,
        peak_width=high.count / events,
        peak_position=scan.load_max_at / events,
    )
