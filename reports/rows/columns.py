# SPDX-License-Identifier: Apache-2.0
"""The columns of the result row: the only place that names and defines a metric."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

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


def _memory(name: str, heading: str, definition: str, lower: bool | None = True) -> Column:
    return Column(name, "memory", "bytes", heading, definition, lower)


def _fragmentation(name: str, heading: str, definition: str, lower: bool | None = True) -> Column:
    return Column(name, "fragmentation", "ratio", heading, definition, lower, fraction=True)


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
    shown = {"p999": "p99.9"}
    columns: list[Column] = []
    for key, words in statistics.items():
        name, heading = f"{call}_{key}_seconds", f"{call} {shown.get(key, key)}"
        definition = (
            f"Host seconds to {verb} one block: {words} over the {call}_count calls of a pass;"
            " median of the passes. The cost of the timer is subtracted, and device time is not"
            " included."
        )
        columns.append(_timed(name, "latency", heading, definition))
        columns += _interval(name, "latency", heading)
    count = Column(
        f"{call}_count",
        "latency",
        "count",
        f"{call}s timed",
        f"Calls that {verb} a block, timed in each pass.",
    )
    return (*columns, count)


def _timed(name: str, group: Group, heading: str, definition: str) -> Column:
    """A time whose interval is in columns of its own."""
    low, high = f"{name}_low", f"{name}_high"
    return Column(name, group, "seconds", heading, definition, True, low=low, high=high)


def _interval(name: str, group: Group, heading: str) -> tuple[Column, Column]:
    """The columns with the ends of the interval of the column `name`."""
    return (
        Column(
            f"{name}_low",
            group,
            "seconds",
            f"{heading}, low",
            f"Minimum of {name} over the passes.",
        ),
        Column(
            f"{name}_high",
            group,
            "seconds",
            f"{heading}, high",
            f"Maximum of {name} over the passes.",
        ),
    )


def _per_event(which: str, description: str) -> tuple[Column, ...]:
    """The columns of one kind of pass: minimum, median and maximum of the passes."""
    name = f"seconds_per_event_{which}"
    words = f"Host seconds per event of allocbench's own allocator, {description}"

    def column(suffix: str, more: str, statistic: str, median: str = "", high: str = "") -> Column:
        heading = f"host time per event{'' if which == 'steady' else f', {which}'}{more}"
        definition = f"{words}: {statistic} of the passes."
        return Column(
            name + suffix,
            "time",
            "seconds",
            heading,
            definition,
            True,
            median=median,
            high=high,
        )

    return (
        column("", "", "minimum", median=f"{name}_median", high=f"{name}_max"),
        column("_median", ", median", "median"),
        column("_max", ", max", "maximum"),
    )


COLUMNS: tuple[Column, ...] = (
    Column("workload", "identity", "", "workload", "The trace that was replayed."),
    Column("allocator", "identity", "", "allocator", "The allocator and its options."),
    Column("device", "identity", "", "device", "The device that provides the segments."),
    Column("device_kind", "identity", "", "device kind", "simulated, cuda or null (a null GPU)."),
    Column("events", "identity", "count", "events", "Events of the trace."),
    Column("blocks", "identity", "count", "blocks", "Allocs of the trace."),
    Column(
        "candidate",
        "identity",
        "",
        "candidate",
        "Whether the allocator can be recommended. The others are floors, shown for comparison.",
    ),
    *WORKLOAD,
    Column(
        "capacity",
        "memory",
        "bytes",
        "capacity",
        "Bytes of the device that a program can use, without the CUDA context.",
    ),
    _memory(
        "min_capacity",
        "min capacity",
        "Bytes of the smallest device on which the trace completes with no failed request, found"
        " by bisection to 2 MiB. The CUDA context is not included.",
    ),
    Column(
        "card",
        "memory",
        "",
        "smallest card",
        "The smallest common card on which the trace completes. Its capacity is what its driver"
        " reports, minus the CUDA context.",
    ),
    Column(
        "context",
        "memory",
        "bytes",
        "CUDA context",
        "Bytes of the card that a CUDA context uses: an estimate, used to find the card.",
    ),
    _memory("peak_reserved", "peak reserved", "max over time of the bytes held from the device."),
    Column(
        "overhead",
        "memory",
        "ratio",
        "overhead",
        "peak_reserved / max_load (at least 1): the distance from the bound.",
        True,
    ),
    _memory(
        "wasted",
        "wasted at peak",
        "peak_reserved - max_load: bytes held at the peak that the program never needed at the"
        " same time, lost to rounding and to free memory; n/a if requests failed.",
    ),
    _memory(
        "stranded",
        "stranded",
        "reserved - allocated, at the instant reserved first peaks: held from the device but"
        " not allocated.",
    ),
    _memory(
        "peak_allocated", "peak allocated", "max over time of the bytes set aside after rounding."
    ),
    _memory("peak_requested", "peak requested", "max over time of the requested bytes.", None),
    _memory(
        "max_load",
        "max load",
        "max over time of the live requested bytes of the trace: the lower bound for any allocator"
        " on it.",
        None,
    ),
    _fragmentation(
        "fragmentation_ratio",
        "fragm. ratio",
        "1 - peak_allocated / peak_reserved, as in GMLake and STAlloc: the share of the peak"
        " reserved bytes that was never allocated.",
    ),
    _fragmentation(
        "internal_fragmentation",
        "internal fragm.",
        "(allocated - requested) / allocated, at the instant reserved first peaks.",
    ),
    _fragmentation(
        "external_fragmentation",
        "external fragm.",
        "(free - largest free block) / free with free = reserved - allocated, at the instant"
        " reserved first peaks; 0 if nothing is free, n/a if the allocator keeps no free blocks. It"
        " shows whether a large request would fit; it means little if little is free.",
        None,
    ),
    _fragmentation(
        "internal_fragmentation_mean",
        "internal fragm., mean",
        "(allocated - requested) / allocated, mean over the allocs and frees; 0 if nothing is"
        " allocated.",
    ),
    _fragmentation(
        "external_fragmentation_mean",
        "external fragm., mean",
        "(free - largest free block) / free, mean over the allocs and frees whose event number is"
        " a multiple of k = max(1, events // 1000), and the last event; 0 if nothing is free.",
        None,
    ),
    _fragmentation("utilization", "utilization", "peak_allocated / peak_reserved.", False),
    _fragmentation(
        "utilization_at_peak",
        "utilization at peak",
        "allocated / reserved, at the instant reserved first peaks.",
        False,
    ),
    Column(
        "stable_address_share",
        "memory",
        "ratio",
        "stable addresses",
        "Share of the allocs in steps 3 to K that are at the address of their counterpart in the"
        " step before. The counterpart of the j-th alloc of a size in step k is the j-th alloc of"
        " that size in step k-1. An alloc that has no counterpart, or that failed, counts as not"
        " stable. n/a if these steps have no alloc. A graph must be captured again when the address"
        " of an input changes.",
        False,
        fraction=True,
    ),
    Column(
        "stable_address_bytes_share",
        "memory",
        "ratio",
        "stable addresses, bytes",
        "The same share weighted by the requested bytes of each alloc.",
        False,
        fraction=True,
    ),
    *_latency("alloc", "allocate"),
    *_latency("free", "free"),
    Column(
        "timer_seconds",
        "latency",
        "seconds",
        "timer cost",
        "Host seconds to read the timer once; subtracted from every timed call.",
    ),
    *_per_event("steady", "when an allocator replays the trace for the third time"),
    *_per_event("cold", "when a new allocator replays the trace"),
    Column("passes", "time", "count", "passes", "Number of passes for each time per event."),
    Column(
        "device_calls",
        "device",
        "count",
        "device calls",
        "Calls to the device: malloc, free, map, unmap.",
        True,
    ),
    Column(
        "device_calls_steady",
        "device",
        "count",
        "device calls, steady",
        "Calls to the device when one allocator replays the trace for the third time. Each block is"
        " freed at the end of each pass. So these are the calls that remain when all steps have"
        " occurred before.",
        True,
    ),
    _timed(
        "device_seconds",
        "device",
        "device time",
        "Total time of all device calls: measured on a GPU, estimated by a model on a simulated"
        " device; never part of host time. Tables show an estimate as its range.",
    ),
    Column(
        "device_seconds_low",
        "device",
        "seconds",
        "device time, low",
        "Minimum of device_seconds over the passes; of an estimate, the time with all assumed costs"
        " at the low ends of their ranges.",
    ),
    Column(
        "device_seconds_high",
        "device",
        "seconds",
        "device time, high",
        "Maximum of device_seconds over the passes; of an estimate, the time with all assumed costs"
        " at the high ends of their ranges.",
    ),
    Column(
        "device_seconds_per_event",
        "device",
        "seconds",
        "device time per event",
        "device_seconds / events.",
        True,
    ),
    Column(
        "device_seconds_source",
        "device",
        "",
        "device time source",
        "Whether device_seconds is an estimate or was measured.",
    ),
    Column(
        "device_assumptions",
        "device",
        "",
        "assumed costs",
        "The costs of device calls that an estimate assumes, as JSON: call, bytes, and the low,"
        " estimated and high seconds of one call; `calls` says how many calls each counts for (one"
        " with a size between two of these sizes counts for both in part). device_seconds is the"
        " sum of calls times seconds. Two estimates are compared with the same costs in both:"
        " their order is decided only if it is the same with all costs within their ranges.",
    ),
    Column("failures", "failures", "count", "failures", "Requests that failed.", True),
    Column(
        "retries", "failures", "count", "retries", "Requests that were repeated after a trim.", True
    ),
    Column(
        "unavailable",
        "failures",
        "",
        "n/a because",
        "Why there is no result: the allocator cannot work on the device, or the run ended with an"
        " error.",
    ),
    Column(
        "settings",
        "failures",
        "",
        "as recorded",
        "The allocator with the settings and the version that the trace was recorded with, where"
        " the allocator has none of its own.",
    ),
    Column(
        "begins_with",
        "failures",
        "",
        "begins with",
        "What the allocator held when a recording began: its segments, or new ones with its blocks"
        " in them.",
    ),
    Column(
        "coverage",
        "failures",
        "",
        "coverage",
        "What the trace lacks of its program; null if it has all of it. Otherwise, the program may"
        " need more than min_capacity.",
    ),
    *(
        Column(name, "advice", "", name.replace("_", " "), f"{definition} The same in each row.")
        for name, definition in (
            ("recommended", "The better of the best setting and the best allocator."),
            ("best_setting", "The best setting of PyTorch's own allocator; null if none fits."),
            ("best_allocator", "The allocator to use: caching for a setting; null if none fits."),
            ("setting_advice", "The sentence about the best setting."),
            ("allocator_advice", "The sentence about the best allocator."),
            ("orders_advice", "Whether the recommended completes the steps in another order."),
        )
    ),
    Column("planned_requests", "plan", "count", "planned requests", "Requests served by the plan."),
    Column(
        "fallback_requests",
        "plan",
        "count",
        "fallback requests",
        "Requests outside the plan, served by best fit.",
    ),
    Column("planned_bytes", "plan", "bytes", "planned bytes", "Bytes served by the plan."),
    Column(
        "fallback_bytes",
        "plan",
        "bytes",
        "fallback bytes",
        "Bytes outside the plan, served by best fit.",
    ),
    Column("allocbench_version", "origin", "", "allocbench", "Version that wrote the row."),
    Column("python", "origin", "", "Python", "Version of Python."),
    Column("cpu", "origin", "", "CPU", "Processor on which host time was measured."),
    Column("date", "origin", "", "date", "Date and time of the run."),
)
