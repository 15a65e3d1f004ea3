# SPDX-License-Identifier: Apache-2.0
"""The columns that describe the workload of a row and do not depend on the allocator.

L(t) is the number of live requested bytes after event t. The lifetime of a block is the number of
events from its alloc to its free, or to the end of the trace.
"""

from allocbench.reports.rows.column import Column, Unit


def _feature(
    name: str, unit: Unit, heading: str, definition: str, fraction: bool = False
) -> Column:
    return Column(name, "workload", unit, heading, definition, fraction=fraction)


def _lifetime(percent: int) -> Column:
    return _feature(
        f"lifetime_p{percent}",
        "count",
        f"lifetime p{percent}",
        f"Smallest lifetime, in events, that {percent}% of the blocks do not exceed.",
    )


WORKLOAD: tuple[Column, ...] = (
    _feature("steps", "count", "steps", "Marks of the trace that begin a step."),
    _feature("streams", "count", "streams", "Distinct streams of the allocs and frees."),
    _feature(
        "live_blocks_peak",
        "count",
        "live blocks, peak",
        "Largest number of live blocks at any time.",
    ),
    _feature(
        "live_blocks_mean",
        "count",
        "live blocks, mean",
        "Mean number of live blocks over the events, rounded.",
    ),
    _feature("largest_request", "bytes", "largest request", "Largest requested size."),
    _feature("distinct_sizes", "count", "distinct sizes", "Number of distinct requested sizes."),
    _feature(
        "size_entropy",
        "bits",
        "size entropy",
        "-sum of p(s) log2 p(s) over the distinct sizes s, p(s) is the share of allocs of size s;"
        " 0 if all sizes are equal.",
    ),
    _lifetime(50),
    _lifetime(90),
    _lifetime(99),
    _feature(
        "repeat_rate",
        "ratio",
        "repeat rate",
        "sum of |S_k intersected with S_(k-1)| / sum of max(|S_k|, |S_(k-1)|) over the steps k"
        " from the second on, where S_k is the multiset of sizes requested in step k; 100% if every"
        " step requests the same sizes as the one before.",
        fraction=True,
    ),
    _feature(
        "load_mean", "ratio", "load, mean", "L(t) / max_load, mean over the events.", fraction=True
    ),
    _feature(
        "peak_width",
        "ratio",
        "peak width",
        "Share of the events with L(t) >= 0.9 max_load; small for a sharp peak.",
        fraction=True,
    ),
    _feature(
        "peak_position",
        "ratio",
        "peak position",
        "First event at which L(t) is max_load, as a share of the events.",
        fraction=True,
    ),
)
