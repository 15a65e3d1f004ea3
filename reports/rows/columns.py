# SPDX-License-Identifier: Apache-2.0
"""The columns of the result row: the only place that names and defines a metric."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from allocbench.base import units

Unit: TypeAlias = Literal["bytes", "seconds", "ratio", "count", "bits", ""]
Group: TypeAlias = Literal[
    "identity",
    "workload",
    "memory",
    "fragmentation",
    "latency",
    "time",
    "device",
    "failures",
    "advice",
    "plan",
    "origin",
]


@dataclass(frozen=True)
class Column:
    """One column of the result row.

    `lower_is_better` is None if neither direction is better. A `fraction` is a ratio within 0..1,
    shown in percent. `median` names the column that holds the median of the passes whose minimum
    this column holds. `low` and `high` name the columns that hold the interval of a measured time:
    the minimum and maximum of its passes.
    """

    name: str
    group: Group
    unit: Unit
    heading: str
    definition: str
    lower_is_better: bool | None = None
    fraction: bool = False
    median: str = ""
    low: str = ""
    high: str = ""

    def text(self, number: float | int | None) -> str:
        """The number in the column's unit, "n/a" for None."""
        if number is None:
            return units.NOT_AVAILABLE
        if self.unit == "bytes":
            return units.size(number)
        if self.unit == "seconds":
            return units.seconds(number)
        if self.unit == "ratio":
            return units.percent(number) if self.fraction else units.times(number)
        if self.unit == "bits":
            return f"{number:.2f} bits"
        return f"{number:,}"

    def exact(self, number: float | int | None) -> str:
        """The number unrounded, with its unit."""
        if number is None:
            return units.NOT_AVAILABLE
        digits = f"{number:,}" if isinstance(number, int) else repr(number)
        return f"{digits} {self.unit}" if self.unit in ("bytes", "seconds", "bits") else digits


def _column(
    group: Group,
    name: str,
    unit: Unit,
    definition: str,
    lower: bool | None = None,
    heading: str = "",
    **others: Any,
) -> Column:
    """A column; its heading, unless one is given, is its name in words."""
    heading = heading or name.replace("_", " ")
    return Column(name, group, unit, heading, definition, lower, **others)


_identity = partial(_column, "identity")
_feature = partial(_column, "workload")
_memory = partial(_column, "memory")
_device = partial(_column, "device")
_failures = partial(_column, "failures")
_plan = partial(_column, "plan")
_origin = partial(_column, "origin")


def _share(
    group: Group, name: str, definition: str, lower: bool | None = None, heading: str = ""
) -> Column:
    return _column(group, name, "ratio", definition, lower, heading, fraction=True)


_fragmentation = partial(_share, "fragmentation")


def _latency(call: str, verb: str) -> tuple[Column, ...]:
    """The columns of one kind of call: mean, percentiles, maximum and number of timed calls.

    Each statistic is the median over the passes; its interval is from the minimum to the maximum.
    """
    statistics = {
        "mean": "mean",
        "p50": "median",
        "p90": "90th percentile",
        "p99": "99th percentile",
        "p999": "99.9th percentile",
        "max": "maximum",
    }
    time = partial(_column, "latency", unit="seconds")
    columns: list[Column] = []
    for key, words in statistics.items():
        name, heading = f"{call}_{key}_seconds", f"{call} {'p99.9' if key == 'p999' else key}"
        low, high = f"{name}_low", f"{name}_high"
        definition = (
            f"Host seconds to {verb} one block: {words} over the {call}_count calls of a pass;"
            " median of the passes. The cost of the timer is subtracted, and device time is not"
            " included."
        )
        over = f"of {name} over the passes."
        columns += (
            time(name, definition=definition, lower=True, heading=heading, low=low, high=high),
            time(low, definition=f"Minimum {over}", heading=f"{heading}, low"),
            time(high, definition=f"Maximum {over}", heading=f"{heading}, high"),
        )
    told = f"Calls that {verb} a block, timed in each pass."
    return (*columns, _column("latency", f"{call}_count", "count", told, None, f"{call}s timed"))


def _per_event(which: str, description: str) -> tuple[Column, ...]:
    """The columns of one kind of pass: minimum, median and maximum of the passes."""
    name = f"seconds_per_event_{which}"
    heading = f"host time per event{'' if which == 'steady' else f', {which}'}"
    words = f"Host seconds per event of allocbench's own allocator, {description}"

    def column(suffix: str, more: str, statistic: str, **ends: Any) -> Column:
        told = f"{words}: {statistic} of the passes."
        return _column("time", name + suffix, "seconds", told, True, heading + more, **ends)

    return (
        column("", "", "minimum", median=f"{name}_median", high=f"{name}_max"),
        column("_median", ", median", "median"),
        column("_max", ", max", "maximum"),
    )


COLUMNS: tuple[Column, ...] = (
    _identity("workload", "", "The trace that was replayed."),
    _identity("allocator", "", "The allocator and its options."),
    _identity("device", "", "The device that provides the segments."),
    _identity("device_kind", "", "simulated, cuda or null (a null GPU)."),
    _identity("events", "count", "Events of the trace."),
    _identity("blocks", "count", "Allocs of the trace."),
    _identity(
        "candidate",
        "",
        "Whether the allocator can be recommended. The others are floors, shown for comparison.",
    ),
    _feature("steps", "count", "Marks of the trace that begin a step."),
    _feature("streams", "count", "Distinct streams of the allocs and frees."),
    _feature(
        "live_blocks_peak",
        "count",
        "Largest number of live blocks at any time.",
        heading="live blocks, peak",
    ),
    _feature(
        "live_blocks_mean",
        "count",
        "Mean number of live blocks over the events, rounded.",
        heading="live blocks, mean",
    ),
    _feature("largest_request", "bytes", "Largest requested size."),
    _feature("distinct_sizes", "count", "Number of distinct requested sizes."),
    _feature(
        "size_entropy",
        "bits",
        "-sum of p(s) log2 p(s) over the distinct sizes s, p(s) is the share of allocs of size s;"
        " 0 if all sizes are equal.",
    ),
    *(
        _feature(
            f"lifetime_p{percent}",
            "count",
            f"Smallest lifetime, in events, that {percent}% of the blocks do not exceed.",
        )
        for percent in (50, 90, 99)
    ),
    _share(
        "workload",
        "repeat_rate",
        "sum of |S_k intersected with S_(k-1)| / sum of max(|S_k|, |S_(k-1)|) over the steps k"
        " from the second on, where S_k is the multiset of sizes requested in step k; 100% if every"
        " step requests the same sizes as the one before.",
    ),
    _share("workload", "load_mean", "L(t) / max_load, mean over the events.", heading="load, mean"),
    _share(
        "workload",
        "peak_width",
        "Share of the events with L(t) >= 0.9 max_load; small for a sharp peak.",
    ),
    _share(
        "workload",
        "peak_position",
        "First event at which L(t) is max_load, as a share of the events.",
    ),
    _memory(
        "capacity", "bytes", "Bytes of the device that a program can use, without the CUDA context."
    ),
    _memory(
        "min_capacity",
        "bytes",
        "Bytes of the smallest device on which the trace completes with no failed request, found"
        " by bisection to 2 MiB. The CUDA context is not included.",
        True,
    ),
    _memory(
        "card",
        "",
        "The smallest common card on which the trace completes. Its capacity is what its driver"
        " reports, minus the CUDA context.",
        heading="smallest card",
    ),
    _memory(
        "context",
        "bytes",
        "Bytes of the card that a CUDA context uses: an estimate, used to find the card.",
        heading="CUDA context",
    ),
    _memory("peak_reserved", "bytes", "max over time of the bytes held from the device.", True),
    _memory(
        "overhead",
        "ratio",
        "peak_reserved / max_load (at least 1): the distance from the bound.",
        True,
    ),
    _memory(
        "wasted",
        "bytes",
        "peak_reserved - max_load: bytes held at the peak that the program never needed at the"
        " same time, lost to rounding and to free memory; n/a if requests failed.",
        True,
        heading="wasted at peak",
    ),
    _memory(
        "stranded",
        "bytes",
        "reserved - allocated, at the instant reserved first peaks: held from the device but not"
        " allocated.",
        True,
    ),
    _memory(
        "peak_allocated", "bytes", "max over time of the bytes set aside after rounding.", True
    ),
    _memory("peak_requested", "bytes", "max over time of the requested bytes."),
    _memory(
        "max_load",
        "bytes",
        "max over time of the live requested bytes of the trace: the lower bound for any"
        " allocator on it.",
    ),
    _fragmentation(
        "fragmentation_ratio",
        "1 - peak_allocated / peak_reserved, as in GMLake and STAlloc: the share of the peak"
        " reserved bytes that was never allocated.",
        True,
        heading="fragm. ratio",
    ),
    _fragmentation(
        "internal_fragmentation",
        "(allocated - requested) / allocated, at the instant reserved first peaks.",
        True,
        heading="internal fragm.",
    ),
    _fragmentation(
        "external_fragmentation",
        "(free - largest free block) / free with free = reserved - allocated, at the instant"
        " reserved first peaks; 0 if nothing is free, n/a if the allocator keeps no free blocks."
        " It shows whether a large request would fit; it means little if little is free.",
        heading="external fragm.",
    ),
    _fragmentation(
        "internal_fragmentation_mean",
        "(allocated - requested) / allocated, mean over the allocs and frees; 0 if nothing is"
        " allocated.",
        True,
        heading="internal fragm., mean",
    ),
    _fragmentation(
        "external_fragmentation_mean",
        "(free - largest free block) / free, mean over the allocs and frees whose event number is"
        " a multiple of k = max(1, events // 1000), and the last event; 0 if nothing is free.",
        heading="external fragm., mean",
    ),
    _fragmentation("utilization", "peak_allocated / peak_reserved.", False),
    _fragmentation(
        "utilization_at_peak", "allocated / reserved, at the instant reserved first peaks.", False
    ),
    _share(
        "memory",
        "stable_address_share",
        "Share of the allocs in steps 3 to K that are at the address of their counterpart in the"
        " step before. The counterpart of the j-th alloc of a size in step k is the j-th alloc of"
        " that size in step k-1. An alloc that has no counterpart, or that failed, counts as not"
        " stable. n/a if these steps have no alloc. A graph must be captured again when the"
        " address of an input changes.",
        False,
        heading="stable addresses",
    ),
    _share(
        "memory",
        "stable_address_bytes_share",
        "The same share weighted by the requested bytes of each alloc.",
        False,
        heading="stable addresses, bytes",
    ),
    *_latency("alloc", "allocate"),
    *_latency("free", "free"),
    _column(
        "latency",
        "timer_seconds",
        "seconds",
        "Host seconds to read the timer once; subtracted from every timed call.",
        heading="timer cost",
    ),
    *_per_event("steady", "when an allocator replays the trace for the third time"),
    *_per_event("cold", "when a new allocator replays the trace"),
    _column("time", "passes", "count", "Number of passes for each time per event."),
    _device("device_calls", "count", "Calls to the device: malloc, free, map, unmap.", True),
    _device(
        "device_calls_steady",
        "count",
        "Calls to the device when one allocator replays the trace for the third time. Each block"
        " is freed at the end of each pass. So these are the calls that remain when all steps have"
        " occurred before.",
        True,
        heading="device calls, steady",
    ),
    _device(
        "device_seconds",
        "seconds",
        "Total time of all device calls: measured on a GPU, estimated by a model on a simulated"
        " device; never part of host time. Tables show an estimate as its range.",
        True,
        heading="device time",
        low="device_seconds_low",
        high="device_seconds_high",
    ),
    _device(
        "device_seconds_low",
        "seconds",
        "Minimum of device_seconds over the passes; of an estimate, the time with all assumed"
        " costs at the low ends of their ranges.",
        heading="device time, low",
    ),
    _device(
        "device_seconds_high",
        "seconds",
        "Maximum of device_seconds over the passes; of an estimate, the time with all assumed"
        " costs at the high ends of their ranges.",
        heading="device time, high",
    ),
    _device(
        "device_seconds_per_event",
        "seconds",
        "device_seconds / events.",
        True,
        heading="device time per event",
    ),
    _device(
        "device_seconds_source",
        "",
        "Whether device_seconds is an estimate or was measured.",
        heading="device time source",
    ),
    _device(
        "device_assumptions",
        "",
        "The costs of device calls that an estimate assumes, as JSON: call, bytes, and the low,"
        " estimated and high seconds of one call; `calls` says how many calls each counts for (one"
        " with a size between two of these sizes counts for both in part). device_seconds is the"
        " sum of calls times seconds. Two estimates are compared with the same costs in both:"
        " their order is decided only if it is the same with all costs within their ranges.",
        heading="assumed costs",
    ),
    _failures("failures", "count", "Requests that failed.", True),
    _failures("retries", "count", "Requests that were repeated after a trim.", True),
    _failures(
        "unavailable",
        "",
        "Why there is no result: the allocator cannot work on the device, or the run ended with"
        " an error.",
        heading="n/a because",
    ),
    _failures(
        "settings",
        "",
        "The allocator with the settings and the version that the trace was recorded with, where"
        " the allocator has none of its own.",
        heading="as recorded",
    ),
    _failures(
        "begins_with",
        "",
        "What the allocator held when a recording began: its segments, or new ones with its"
        " blocks in them.",
    ),
    _failures(
        "coverage",
        "",
        "What the trace lacks of its program; null if it has all of it. Otherwise, the program"
        " may need more than min_capacity.",
    ),
    *(
        _column("advice", name, "", f"{definition} The same in each row.")
        for name, definition in (
            ("recommended", "The better of the best setting and the best allocator."),
            ("best_setting", "The best setting of PyTorch's own allocator; null if none fits."),
            ("best_allocator", "The allocator to use: caching for a setting; null if none fits."),
            ("setting_advice", "The sentence about the best setting."),
            ("allocator_advice", "The sentence about the best allocator."),
            ("orders_advice", "Whether the recommended completes the steps in another order."),
        )
    ),
    _plan("planned_requests", "count", "Requests served by the plan."),
    _plan("fallback_requests", "count", "Requests outside the plan, served by best fit."),
    _plan("planned_bytes", "bytes", "Bytes served by the plan."),
    _plan("fallback_bytes", "bytes", "Bytes outside the plan, served by best fit."),
    _origin("allocbench_version", "", "Version that wrote the row.", heading="allocbench"),
    _origin("python", "", "Version of Python.", heading="Python"),
    _origin("cpu", "", "Processor on which host time was measured.", heading="CPU"),
    _origin("date", "", "Date and time of the run."),
)
